"""Ports that programs in boxes listen at: noticed, offered to the person, and once allowed reached at 127.0.0.1.

ports = Ports(rules, clock, note)             # told of boxes by their manager
ports.let_ask(asker)                          # from now on people are asked
await ports.keep_looking(boxes)               # for as long as the daemon runs
await ports.open(box, 5173)                   # a person wants it
await ports.close(box, 5173)
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from lodger_daemon.clock import Clock, MonoTime
from lodger_daemon.durable_files import write_durably
from lodger_daemon.network.network import WITH_NETWORK
from lodger_daemon.ports.contract import PortAsker, PortRules
from lodger_daemon.ports.core import offers
from lodger_daemon.ports.core.grants import BadGrants, Grants, as_text, from_text
from lodger_daemon.ports.core.offers import Port, PortBook, PortState
from lodger_daemon.ports.core.own_callees import ports_of
from lodger_daemon.ports.core.pace import BUSY_S, LONGEST_S, next_look_s
from lodger_daemon.ports.dialling import BoxDialler
from lodger_daemon.ports.forward import LOOPBACK, Forward
from lodger_daemon.ports.looking import look
from lodger_daemon.ports.relay import Relay
from lodger_tools.box.contract import BoxKey, BoxStatus
from lodger_tools.box.record import FoundBox
from lodger_tools.json_value import JsonObject

GRANTS_FILE: Final = "ports.json"
"""In the box's own folder outside, which goes when the box goes."""
_GRANTS_LIMIT_CHARS: Final = 64 * 1024
JUST_NOW_S: Final = 3.0
_log = logging.getLogger(__name__)

Note = Callable[[str, str, str, JsonObject], None]


class NotOpened(Exception):
    """The text says why and what to do."""


class DecidedBy(StrEnum):
    """As the audit log names them."""

    RULE = "a rule"
    PERSON = "a person"


class RunningBoxes(Protocol):
    def statuses(self) -> tuple[BoxStatus, ...]: ...


@dataclass(slots=True)
class _Box:
    found: FoundBox
    dialler: BoxDialler
    book: PortBook = field(default_factory=PortBook)
    forwards: dict[int, Forward] = field(default_factory=dict)
    by_person: set[int] = field(default_factory=set)
    """Those of the open ports that no rule has opened."""
    told_of: set[int] = field(default_factory=set)
    restored: bool = False
    asking: asyncio.Task[None] | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    pause_s: float = BUSY_S
    next_look: MonoTime | None = None
    """None = at once."""
    activity: tuple[int, int] = (0, 0)

    @property
    def key(self) -> BoxKey:
        return self.found.record.key


@dataclass(frozen=True, slots=True)
class ListedPort:
    """One port of one box, as people see it."""

    box: str
    key: BoxKey
    number: int
    port: Port
    local_port: int | None
    connections: int


class Ports:
    """Event loop only. Implements `BoxWatcher`. What is open ends with its box and with this daemon; a later daemon
    opens again what a person allowed for as long as the box lives, and what the rules say."""

    def __init__(
        self,
        rules: PortRules,
        clock: Clock,
        note: Note,
        *,
        asks: bool = True,
        spoken_to: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """
        Args:
            note: called with agent, action, port and details, for the audit log.
            asks: whether people are asked; else they open ports themselves.
            spoken_to: addresses where this daemon, or the person's browser, expects the hub or a model server. No box
                gets a port of theirs here, also while nobody has it: it would be sent what is meant for those.
        """
        self._rules = rules
        self._clock = clock
        self._note = note
        self._asks = asks
        self._spoken_to = spoken_to
        self._asker: PortAsker | None = None
        self._boxes: dict[str, _Box] = {}
        self._relays: set[Relay] = set()
        self._some = asyncio.Event()
        """Set while there are boxes."""
        self._ending: set[asyncio.Task[None]] = set()
        self._closing: Callable[[str, int], None] = lambda box, port: None
        self._left: frozenset[int] = frozenset()
        """Ports here that no box gets any more, beside those of `spoken_to`."""

    def let_ask(self, asker: PortAsker) -> None:
        self._asker = asker

    def tell_of_closing(self, closing: Callable[[str, int], None]) -> None:
        """
        Args:
            closing: called with the box and its port whenever an open port is closed.
        """
        self._closing = closing

    async def leave(self, urls: Iterable[str]) -> None:
        """Somebody who is trusted will be expected at these addresses: what is open here at their ports is closed
        before this first waits, and open elsewhere when it returns."""
        left = ports_of(urls)
        self._left |= left
        found = [
            (box, number, forward)
            for box in self._boxes.values()
            for number, forward in box.forwards.items()
            if forward.local_port in left
        ]
        for _, _, forward in found:
            forward.close()
        for box, number, forward in found:
            await self._move(box, number, forward)

    async def _move(self, box: _Box, number: int, forward: Forward) -> None:
        async with box.lock:
            if box.forwards.get(number) is not forward:
                return
            by = DecidedBy.PERSON if number in box.by_person else DecidedBy.RULE
            del box.forwards[number]
            self._closing(box.found.folder.name, number)
            await forward.aclose()
        self._noted(box, "closed", number, "a provider is expected at its place")
        try:
            await self._open(box, number, by, number)
        except NotOpened as error:
            self._tell(box, str(error))

    def _never(self) -> frozenset[int]:
        return self._left | ports_of(self._spoken_to())

    def is_open(self, name: str, number: int) -> bool:
        box = self._boxes.get(name)
        return box is not None and number in box.forwards

    async def dial(self, name: str, number: int) -> socket.socket:
        """A connection to what listens at an open port. Raises: NotOpened, NotReached."""
        if not self.is_open(name, number):
            raise NotOpened(f"port {number} is not open")
        return await self._boxes[name].dialler.dial(number)

    async def box_started(self, found: FoundBox) -> None:
        if found.record.key.profile in WITH_NETWORK:
            self._boxes.setdefault(found.folder.name, _Box(found, BoxDialler(found)))
            self._some.set()

    def box_ended(self, found: FoundBox) -> None:
        box = self._boxes.pop(found.folder.name, None)
        if not self._boxes:
            self._some.clear()
        if box is None:
            return
        self._let_go(box)
        for number in box.forwards:
            self._noted(box, "closed", number, "the box ended")

    def _let_go(self, box: _Box) -> None:
        box.dialler.close()
        if box.asking is not None:
            box.asking.cancel()
        for number, forward in box.forwards.items():
            forward.close()
            self._closing(box.found.folder.name, number)

    async def keep_looking(self, boxes: RunningBoxes) -> None:
        while True:
            await self._some.wait()
            await self._clock.sleep(BUSY_S)
            statuses = {status.host_pid: status for status in boxes.statuses()}
            for name, box in tuple(self._boxes.items()):
                for forward in box.forwards.values():
                    forward.end_silent()
                if self._is_due(box, statuses.get(box.found.record.runner_pid)):
                    try:
                        await self._look(name, box)
                    except Exception:  # noqa: BLE001 - logged just below
                        # Ports of one box are no reason to end what else this daemon does.
                        _log.exception("the ports of the box %s could not be looked at", name)
                        box.next_look = MonoTime(self._clock.mono() + LONGEST_S)

    def _is_due(self, box: _Box, status: BoxStatus | None) -> bool:
        activity = (0, 0) if status is None else (status.running_calls, status.background)
        at_work = activity[0] > 0 or (status is not None and not activity[1] and status.idle_s < JUST_NOW_S)
        if at_work or activity != box.activity:
            box.activity, box.pause_s, box.next_look = activity, BUSY_S, None
        return box.next_look is None or box.next_look <= self._clock.mono()

    async def _look(self, name: str, box: _Box) -> None:
        listening = await asyncio.to_thread(look, box.found.record)
        if not box.restored:
            await self._restore(box)
        if self._boxes.get(name) is not box:
            return
        before = box.book
        box.book = offers.looked(before, listening, self._clock.wall())
        box.pause_s = next_look_s(box.pause_s, changed=box.book != before)
        box.next_look = MonoTime(self._clock.mono() + box.pause_s)
        for number in offers.to_open(box.book, lambda port: self._rules.opens(box.key.workspace, port)):
            try:
                await self._open(box, number, DecidedBy.RULE, number)
            except NotOpened as error:
                _log.warning("%s", error)
        self._ask(box)

    def _ask(self, box: _Box) -> None:
        asker = self._asker
        if not self._asks or asker is None or box.asking is not None:
            return
        if self._boxes.get(box.found.folder.name) is not box:
            return
        wanted = offers.to_ask(box.book)
        if wanted and not asker.can_ask(box.key):
            self._hint(box, wanted)
        elif wanted:
            box.asking = task = asyncio.create_task(self._asked(box, asker, wanted), name="ports")
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def _asked(self, box: _Box, asker: PortAsker, ports: tuple[int, ...]) -> None:
        box.book = offers.asked(box.book, ports)
        allowed: frozenset[int] | None = None
        try:
            allowed = await asker.ask_about_ports(box.key, ports, self._rules)
            if allowed is not None:
                for number in ports:
                    await self._answered(box, number, allowed=number in allowed)
        except Exception:  # noqa: BLE001 - logged just below
            _log.exception("nobody could be asked about ports")
        finally:
            box.asking = None
        if allowed is None:
            self._hint(box, ports)
        else:
            self._ask(box)

    def _hint(self, box: _Box, ports: tuple[int, ...]) -> None:
        """Where nobody is asked, or the turn has ended before they answered. Once for each port, and of no more ports
        than would be asked about: a program may listen at others each second."""
        for number in ports:
            if number not in box.told_of and len(box.told_of) < offers.ASKED_LIMIT:
                box.told_of.add(number)
                self._tell(box, f"Port {number} listens in the box; `lodger ports open {number}` opens it here.")

    async def _answered(self, box: _Box, number: int, *, allowed: bool) -> None:
        if not allowed:
            await self._deny(box, number, "denied")
            return
        try:
            await self._open(box, number, DecidedBy.PERSON, number)
        except NotOpened as error:
            self._tell(box, str(error))

    async def open(self, name: str, number: int) -> int:
        """A person wants it. Returns the local port. Raises: NotOpened."""
        box = self._box(name)
        if number not in box.forwards and (why := offers.may_open(box.book, number)) is not None:
            raise NotOpened(why)
        return await self._open(box, number, DecidedBy.PERSON, number)

    async def close(self, name: str, number: int) -> None:
        """A person wants it closed, or asked about no more. Raises: NotOpened."""
        await self._deny(self._box(name), number, "closed")

    def _box(self, name: str) -> _Box:
        box = self._boxes.get(name)
        if box is None:
            raise NotOpened("that box has ended")
        return box

    async def _open(self, box: _Box, number: int, by: DecidedBy, wanted: int) -> int:
        """Raises: NotOpened."""
        async with box.lock:
            known = box.forwards.get(number)
            if known is not None:
                return known.local_port
            forward = Forward(box.dialler, number, self._clock, self._relays)
            try:
                await forward.listen(wanted, self._never())
            except OSError as error:
                raise NotOpened(f"port {number} of the box could not be opened here: {error}") from error
            if self._boxes.get(box.found.folder.name) is not box:
                await forward.aclose()
                raise NotOpened("the box has ended")
            if forward.local_port in self._never():
                await forward.aclose()
                raise NotOpened(f"port {forward.local_port} here is now a provider's; open it again")
            box.forwards[number] = forward
            box.book = offers.settled(box.book, number, PortState.OPEN, self._clock.wall())
            if by is DecidedBy.PERSON:
                box.by_person.add(number)
            await self._keep(box)
        self._noted(box, "opened", number, by, forward.local_port)
        self._tell(box, f"Port {number} of the box is open at http://{LOOPBACK}:{forward.local_port}")
        return forward.local_port

    async def _deny(self, box: _Box, number: int, action: str) -> None:
        async with box.lock:
            forward = box.forwards.pop(number, None)
            box.by_person.discard(number)
            box.book = offers.settled(box.book, number, PortState.DENIED, self._clock.wall())
            if forward is not None:
                self._closing(box.found.folder.name, number)
                await forward.aclose()
            await self._keep(box)
        self._noted(box, action, number, DecidedBy.PERSON)

    async def _keep(self, box: _Box) -> None:
        opened = {number: forward.local_port for number, forward in box.forwards.items() if number in box.by_person}
        denied = frozenset(n for n, port in box.book.ports.items() if port.state is PortState.DENIED)
        try:
            await asyncio.to_thread(write_durably, box.found.folder / GRANTS_FILE, as_text(Grants(opened, denied)))
        except OSError as error:
            # It holds for this daemon; a later one asks again.
            _log.warning("the open ports of a box could not be written: %s", error)

    async def _restore(self, box: _Box) -> None:
        """What a person had decided about this box when the last daemon ended."""
        box.restored = True
        grants = await asyncio.to_thread(_read_grants, box.found)
        now = self._clock.wall()
        for number in grants.denied:
            box.book = offers.settled(box.book, number, PortState.DENIED, now)
        for number, local_port in grants.open.items():
            if offers.may_open(box.book, number) is not None:
                continue
            try:
                await self._open(box, number, DecidedBy.PERSON, local_port)
            except NotOpened as error:
                _log.warning("%s", error)

    def listed(self) -> tuple[ListedPort, ...]:
        found = []
        for name, box in self._boxes.items():
            for number, port in sorted(box.book.ports.items()):
                forward = box.forwards.get(number)
                local_port, connections = (None, 0) if forward is None else (forward.local_port, forward.connections)
                found.append(ListedPort(name, box.key, number, port, local_port, connections))
        return tuple(found)

    async def aclose(self) -> None:
        """Close every open port here. Call it once conversations have stopped, so that questions stay for a later
        daemon."""
        boxes = tuple(self._boxes.values())
        self._boxes.clear()
        self._some.clear()
        for box in boxes:
            self._let_go(box)
        await asyncio.gather(*self._ending, return_exceptions=True)
        for box in boxes:
            for forward in box.forwards.values():
                await forward.aclose()

    def _tell(self, box: _Box, text: str) -> None:
        if self._asker is not None:
            self._asker.tell(box.key, text)

    def _noted(self, box: _Box, action: str, number: int, by: str, local_port: int | None = None) -> None:
        detail: JsonObject = {"workspace": box.key.workspace, "by": by}
        if local_port is not None:
            detail["local_port"] = local_port
        self._note(box.key.agent_id, f"port.{action}", str(number), detail)


def _read_grants(found: FoundBox) -> Grants:
    try:
        with (found.folder / GRANTS_FILE).open(encoding="utf-8", errors="replace") as file:
            return from_text(file.read(_GRANTS_LIMIT_CHARS))
    except FileNotFoundError:
        return Grants({}, frozenset())
    except (OSError, BadGrants) as error:
        # What cannot be read opens nothing; the person is asked again.
        _log.warning("the open ports of the box %s could not be read: %s", found.folder.name, error)
        return Grants({}, frozenset())
