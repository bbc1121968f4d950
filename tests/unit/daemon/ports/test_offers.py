"""What a box can bring about by listening: decided without a box."""

import random

import pytest

from lodger_daemon.clock import WallTime
from lodger_daemon.ports.core import offers
from lodger_daemon.ports.core.offers import PortBook, PortState
from lodger_daemon.ports.core.pace import BUSY_S, LONGEST_S, next_look_s
from lodger_daemon.ports.core.port_rules import PortRule, parse_port_rule

NOW, LATER = WallTime(1.0), WallTime(2.0)


def states(book: PortBook) -> dict[int, str]:
    return {number: port.state.value for number, port in book.ports.items()}


def test_only_what_an_agent_s_program_can_have_is_known() -> None:
    assert states(offers.looked(PortBook(), {22, 80, 443, 3128, 3000, 45000, 61000}, NOW)) == {
        3000: "offered",
        45000: "seen",
        61000: "offered",
    }


def test_what_stops_listening_is_offered_no_more_and_what_was_decided_stays() -> None:
    book = offers.looked(PortBook(), {3000, 4000, 5000}, NOW)
    book = offers.settled(book, 4000, PortState.OPEN, NOW)
    book = offers.settled(book, 5000, PortState.DENIED, NOW)
    book = offers.looked(book, (), LATER)
    assert states(book) == {4000: "open", 5000: "denied"}
    assert not book.ports[4000].listens and book.ports[4000].since == NOW


def test_a_question_without_an_answer_comes_again_and_not_for_ever() -> None:
    book = offers.looked(PortBook(), {3000}, NOW)
    for _ in range(offers.TIMES_ASKED):
        assert offers.to_ask(book) == (3000,)
        book = offers.asked(book, (3000,))
    assert offers.to_ask(book) == ()


def test_ports_that_come_and_go_do_not_outrun_the_limit() -> None:
    """A program that listens at another port every second."""
    rng, book, questions = random.Random(7), PortBook(), list[int]()
    for _ in range(500):
        book = offers.looked(book, rng.sample(range(1024, 30000), 9), NOW)
        assert len(book.ports) <= offers.KNOWN_LIMIT
        wanted = offers.to_ask(book)
        assert len(wanted) <= offers.TOGETHER_LIMIT
        questions += wanted
        book = offers.asked(book, wanted)
    assert len(set(questions)) == offers.ASKED_LIMIT
    assert len(questions) <= offers.ASKED_LIMIT * offers.TIMES_ASKED


def test_so_many_are_open_and_no_more() -> None:
    book = offers.looked(PortBook(), range(2000, 2100), NOW)
    opened = offers.to_open(book, lambda _: True)
    assert len(opened) == offers.OPEN_LIMIT
    for number in opened:
        book = offers.settled(book, number, PortState.OPEN, NOW)
    assert offers.to_open(book, lambda _: True) == () == offers.to_ask(book)
    assert "open already" in str(offers.may_open(book, 2050))


def test_a_person_opens_no_port_of_ours() -> None:
    assert offers.may_open(PortBook(), 3000) is None
    for number in (0, 80, 1023, 3128, 65536):
        assert offers.may_open(PortBook(), number)


def test_a_look_is_rarer_the_longer_nothing_changes() -> None:
    pauses, pause = [], BUSY_S
    for _ in range(6):
        pause = next_look_s(pause, changed=False)
        pauses.append(pause)
    assert pauses == [2.0, 4.0, 8.0, 15.0, LONGEST_S, LONGEST_S]
    assert next_look_s(15.0, changed=True) == BUSY_S


def test_a_rule_names_a_port_and_may_name_a_folder() -> None:
    here = parse_port_rule("5173 in /home/me/my site")
    assert here == PortRule(5173, "/home/me/my site") and str(here) == "5173 in /home/me/my site"
    assert here.opens("/home/me/my site", 5173) and not here.opens("/home/me", 5173)
    everywhere = parse_port_rule("3000")
    assert everywhere.opens("/any", 3000) and not everywhere.opens("/any", 3001)


@pytest.mark.parametrize(
    "text", ["", "80", "3128", "x", "٣000", "70000", "3000 in site", "3000 in ", "-3000", "3000/tcp"]
)
def test_a_rule_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"port|proxy|folder"):
        parse_port_rule(text)
