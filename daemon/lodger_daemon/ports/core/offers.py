"""What is decided about the ports of one box: which of them a person is asked about, and what became of that.

A box may listen wherever it likes and as often as it likes; what it can bring about is bounded here: so many ports are
known of it, so many are ever asked about, so many are open.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, TypeGuard

from lodger_daemon.clock import WallTime

KNOWN_LIMIT: Final = 64
"""Of one box; the lowest numbers are the ones that people gave."""
ASKED_LIMIT: Final = 16
TOGETHER_LIMIT: Final = 4
"""Ports in one question."""
OPEN_LIMIT: Final = 16
TIMES_ASKED: Final = 3
"""A question that ended with its turn, unanswered, comes again in a later one; not for ever."""
OWN_PORTS: Final = frozenset({3128})
"""The box's proxy."""
FIRST_PORT: Final = 1024
"""Nothing of an agent's can have a lower one (SANDBOX-NOTES.md section 3)."""
LAST_PORT: Final = 65535
FIRST_CHOSEN_BY_SYSTEM: Final = 32768
"""ip(7): ip_local_port_range, which in a new network is what the kernel was built with. Language servers, debuggers and
tests listen there; such a port is listed, and a person may open it, but nobody is asked."""
LAST_CHOSEN_BY_SYSTEM: Final = 60999


class PortState(StrEnum):
    SEEN = "seen"
    """Listens; nobody is asked about it."""
    OFFERED = "offered"
    OPEN = "open"
    DENIED = "denied"
    """Said no to, or closed by the person: not asked about again while the box lives."""


@dataclass(frozen=True, slots=True)
class Port:
    state: PortState
    since: WallTime
    asked: int = 0
    """How often."""
    listens: bool = True


@dataclass(frozen=True, slots=True)
class PortBook:
    """Of one box."""

    ports: dict[int, Port] = field(default_factory=dict)
    asked_about: frozenset[int] = frozenset()
    """All that ever were; what stops listening and comes back stays among them."""


def is_port(value: object) -> TypeGuard[int]:
    """Of what comes from outside: any port of TCP. True is an int, and 1, and none."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= LAST_PORT


def looked(book: PortBook, listening: Iterable[int], now: WallTime) -> PortBook:
    """After a look into the box."""
    found = {port for port in listening if port >= FIRST_PORT and port not in OWN_PORTS}
    kept = {
        number: replace(port, listens=number in found)
        for number, port in book.ports.items()
        if number in found or port.state in (PortState.OPEN, PortState.DENIED)
    }
    for number in sorted(found - kept.keys()):
        if len(kept) >= KNOWN_LIMIT:
            break
        kept[number] = Port(PortState.SEEN if _by_system(number) else PortState.OFFERED, now)
    return replace(book, ports=kept)


def to_open(book: PortBook, allowed: Callable[[int], bool]) -> tuple[int, ...]:
    """Those that a rule of the person opens."""
    room = OPEN_LIMIT - _count(book, PortState.OPEN)
    wanted = (
        number
        for number, port in sorted(book.ports.items())
        if port.listens and port.state in (PortState.SEEN, PortState.OFFERED) and allowed(number)
    )
    return tuple(wanted)[: max(0, room)]


def to_ask(book: PortBook) -> tuple[int, ...]:
    """What the next question is about; empty when there is none."""
    if _count(book, PortState.OPEN) >= OPEN_LIMIT:
        return ()
    offered = [
        number
        for number, port in sorted(book.ports.items())
        if port.state is PortState.OFFERED and port.listens and port.asked < TIMES_ASKED
    ]
    known = [number for number in offered if number in book.asked_about]
    fresh = [number for number in offered if number not in book.asked_about]
    room = max(0, ASKED_LIMIT - len(book.asked_about))
    return tuple(sorted([*known, *fresh[:room]]))[:TOGETHER_LIMIT]


def asked(book: PortBook, ports: Iterable[int]) -> PortBook:
    numbers = frozenset(ports)
    changed = {n: replace(p, asked=p.asked + 1) if n in numbers else p for n, p in book.ports.items()}
    return PortBook(changed, book.asked_about | numbers)


def settled(book: PortBook, number: int, state: PortState, now: WallTime) -> PortBook:
    """A person, or a rule of theirs, has decided."""
    before = book.ports.get(number)
    port = Port(state, now) if before is None else replace(before, state=state, since=now)
    return replace(book, ports={**book.ports, number: port})


def may_open(book: PortBook, number: int) -> str | None:
    """Why a person cannot open this port; None when they can."""
    if not FIRST_PORT <= number <= LAST_PORT or number in OWN_PORTS:
        return f"{number} is no port that a program in a box can offer"
    if _count(book, PortState.OPEN) >= OPEN_LIMIT:
        return f"{OPEN_LIMIT} ports of this box are open already; close one first"
    return None


def _count(book: PortBook, state: PortState) -> int:
    return sum(port.state is state for port in book.ports.values())


def _by_system(number: int) -> bool:
    return FIRST_CHOSEN_BY_SYSTEM <= number <= LAST_CHOSEN_BY_SYSTEM
