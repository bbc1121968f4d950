"""The rules of questions, without a database."""

import pytest

from lodger_daemon.clock import WallTime
from lodger_daemon.questions.core.arguments import arguments_digest
from lodger_daemon.questions.core.rules import (
    DEFAULT_LIMIT_S,
    QuestionStatus,
    Settlement,
    permits,
    remaining_s,
    settle,
)
from lodger_daemon.turns.contract import Allow, Deny


def test_the_digest_is_of_the_values_and_not_of_their_order() -> None:
    same = arguments_digest("Bash", {"b": 1, "a": {"y": "ü", "x": None}})
    assert same == arguments_digest("Bash", {"a": {"x": None, "y": "ü"}, "b": 1})
    others = [
        arguments_digest("Bash", {"a": {"x": None, "y": "ü"}, "b": "1"}),
        arguments_digest("Edit", {"a": {"x": None, "y": "ü"}, "b": 1}),
        arguments_digest("Bash", {"a": {"x": None, "y": "\ud83d"}, "b": 1}),
        arguments_digest("Bash", {"a": {"x": None, "y": "ü"}}),
    ]
    assert len({same, *others}) == 5


def test_an_answer_covers_exactly_the_arguments_it_was_given_for() -> None:
    settlement = settle(Allow(), "Bash", {"command": "ls"})
    assert settlement.status is QuestionStatus.ALLOWED
    assert permits(settlement, "Bash", {"command": "ls"})
    assert not permits(settlement, "Bash", {"command": "ls -a"})
    assert not permits(settlement, "Write", {"command": "ls"})


def test_a_changed_input_is_what_was_allowed() -> None:
    settlement = settle(Allow(updated_input={"command": "ls -a"}), "Bash", {"command": "ls"})
    assert permits(settlement, "Bash", {"command": "ls -a"})
    assert not permits(settlement, "Bash", {"command": "ls"})


def test_what_is_not_allowed_permits_nothing() -> None:
    denied = settle(Deny("no"), "Bash", {})
    assert denied == Settlement(QuestionStatus.DENIED, Deny("no"), None)
    for settlement in (denied, Settlement(QuestionStatus.EXPIRED, None, None)):
        assert not permits(settlement, "Bash", {})


@pytest.mark.parametrize(
    ("now", "expected"),
    [(100.0, 1800.0), (1000.0, 900.0), (1900.0, 0.0), (99999.0, 0.0), (-99999.0, 1800.0)],
)
def test_r8_a_clock_that_was_moved_neither_keeps_a_question_for_ever_nor_revives_it(
    now: float, expected: float
) -> None:
    assert remaining_s(WallTime(100.0), WallTime(100.0 + DEFAULT_LIMIT_S), WallTime(now)) == expected
