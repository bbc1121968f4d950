"""From what the broker asks to what a person is asked."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from lodger_daemon.network.host_questions import DENIAL_S, GATHER_S, GRANT_S, TOLD_LIMIT, HostQuestions
from lodger_tools.box.contract import BoxKey
from support.asked_person import AskedPerson
from support.hub_rig import until
from support.turn_parts import TestClock

KEY, OTHER = BoxKey("agent-1", "/w"), BoxKey("agent-2", "/w")
A, B, C = "a.test:443", "b.test:443", "c.test:443"


class Person(AskedPerson[tuple[BoxKey, tuple[str, ...]], str]):
    """Keeps `HostAsker`'s contract."""

    def __init__(self) -> None:
        super().__init__()
        self.listens = True
        self.told: list[tuple[BoxKey, str]] = []

    async def ask_about_hosts(self, box: BoxKey, hosts: Sequence[str]) -> frozenset[str] | None:
        return await self.ask((box, tuple(hosts)))

    def tell(self, box: BoxKey, text: str) -> bool:
        if self.listens:
            self.told.append((box, text))
        return self.listens


class Table:
    def __init__(self) -> None:
        self.clock, self.person = TestClock(), Person()
        self.decided: list[tuple[int, bool, float]] = []
        self.questions = HostQuestions(self.clock, lambda *word: self.decided.append(word))

    async def gathered(self, count: int = 1) -> None:
        await until(lambda: self.clock.sleeping > 0, "hosts are gathered")
        self.clock.advance(GATHER_S)
        await until(lambda: len(self.person.asked) == count, "a person is asked")


@pytest.fixture
async def table() -> AsyncIterator[Table]:
    made = Table()
    made.questions.let_ask(made.person)
    made.questions.box_known("box", KEY)
    yield made
    await made.questions.aclose()


async def test_hosts_that_come_up_together_are_one_question(table: Table) -> None:
    for number, host in enumerate((A, B, A)):
        table.questions.asked(number, "box", host)
    await table.gathered()
    assert table.person.asked == [(KEY, (A, B))]
    table.person.answers[0].set_result(frozenset({A}))
    await until(lambda: len(table.decided) == 3, "all three are decided")
    assert table.decided == [(0, True, GRANT_S), (1, False, DENIAL_S), (2, True, GRANT_S)]


async def test_a_box_has_one_question_at_a_time(table: Table) -> None:
    """A program that tries a host every second does not bury the person."""
    table.questions.asked(1, "box", A)
    await table.gathered()
    table.questions.asked(2, "box", B)
    table.questions.asked(3, "box", C)
    await asyncio.sleep(0)
    assert table.clock.sleeping == 0
    table.person.answers[0].set_result(frozenset())
    await table.gathered(2)
    assert table.person.asked[1] == (KEY, (B, C))
    table.questions.box_known("other", OTHER)
    table.questions.asked(4, "other", A)
    await table.gathered(3)


async def test_a_question_nobody_waits_for_is_taken_back(table: Table) -> None:
    table.questions.asked(1, "box", A)
    table.questions.asked(2, "box", B)
    await table.gathered()
    table.questions.over(1)
    await asyncio.sleep(0)
    assert table.person.taken_back == 0
    table.questions.over(2)
    await until(lambda: table.person.taken_back == 1, "it is taken back")
    assert table.decided == []


async def test_where_nobody_can_be_asked_the_answer_is_no_at_once_and_is_told_once(table: Table) -> None:
    table.person.there = table.person.listens = False
    table.questions.asked(99, "box", A)
    assert table.decided.pop() == (99, False, 0.0)
    # What nobody was told of is not told already.
    table.person.listens = True
    for number, host in enumerate((A, A, B)):
        table.questions.asked(number, "box", host)
    assert (table.decided, table.person.asked) == ([(number, False, 0.0) for number in range(3)], [])
    assert [(box, A in text, B in text) for box, text in table.person.told] == [(KEY, True, False), (KEY, False, True)]


async def test_a_box_that_tries_every_host_does_not_bury_the_person_in_lines(table: Table) -> None:
    table.person.there = False
    for number in range(TOLD_LIMIT * 3):
        table.questions.asked(number, "box", f"h{number}.test:443")
    assert len(table.person.told) == TOLD_LIMIT
    table.questions.box_gone("box")
    table.questions.box_known("box", KEY)
    table.questions.asked(1_000, "box", A)
    assert len(table.person.told) == TOLD_LIMIT + 1


async def test_an_answer_that_does_not_come_is_no_and_is_not_kept(table: Table) -> None:
    table.questions.asked(1, "box", A)
    await table.gathered()
    table.person.answers[0].set_result(None)
    await until(lambda: bool(table.decided), "it is decided")
    assert table.decided == [(1, False, 0.0)]
    table.questions.asked(2, "box", A)
    await table.gathered(2)
    table.person.answers[1].set_exception(OSError("the disk"))
    await until(lambda: len(table.decided) == 2, "it is decided")
    assert table.decided[1] == (2, False, 0.0)


async def test_what_comes_before_anybody_can_be_asked_waits() -> None:
    """After a restart the broker asks again before boxes and conversations are known."""
    table = Table()
    table.questions.asked(1, "box", A)
    table.questions.asked(2, "gone", A)
    table.questions.let_ask(table.person)
    assert (table.decided, table.clock.sleeping) == ([], 0)
    table.questions.box_known("box", KEY)
    await table.gathered()
    assert table.person.asked == [(KEY, (A,))]
    await table.questions.aclose()
    assert table.decided == []


async def test_a_lost_broker_ends_its_questions(table: Table) -> None:
    table.questions.asked(1, "box", A)
    await table.gathered()
    table.questions.broker_lost()
    table.questions.asked(1, "box", A)
    await until(lambda: table.person.taken_back == 1, "it is taken back")
    await table.gathered(2)
    table.person.answers[1].set_result(frozenset({A}))
    await until(lambda: table.decided == [(1, True, GRANT_S)], "the new one counts")
