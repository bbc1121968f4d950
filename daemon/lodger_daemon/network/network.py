"""What boxes may reach: keeps the broker, gives it every box's way out, and knows what was refused.

The broker is started when a program in a box first wants out: until then a box's socket is only watched.
"""

import asyncio
import logging
import os
import socket
import subprocess
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lodger_daemon.clock import Clock
from lodger_daemon.network.broker_link import BrokerGone, BrokerLink
from lodger_daemon.network.broker_process import find_broker, start_broker
from lodger_daemon.network.contract import HostAsker
from lodger_daemon.network.host_questions import HostQuestions
from lodger_daemon.network.inside_sockets import make_inside_sockets
from lodger_daemon.network.made_inside import NoSockets
from lodger_sandbox.egress.core.allow import AllowList, Entry
from lodger_sandbox.egress.core.wire import Decide, End, ForgetBox, Order, Ping, Serve, ServePlain, SetAllowList
from lodger_sandbox.egress.gate import UNTOLD_LIMIT
from lodger_tools.box import record as records
from lodger_tools.box.contract import BoxKey, BoxLost, BoxProfile
from lodger_tools.box.door import take_door

PROXY_PORT: Final = 3128
"""Where programs in a box find their proxy: the box's own loopback, so no other program can have it first."""
PROXY_URL: Final = f"http://127.0.0.1:{PROXY_PORT}"
WITH_NETWORK: Final = frozenset({BoxProfile.AGENT, BoxProfile.STRICT})
KEPT_REFUSALS: Final = 200
PLAIN_WAIT_S: Final = 1.0
"""It takes some 30 ms on an idle machine; a first command that comes earlier would find no name server."""
_START_TRIES: Final = 3
_FIRST_PAUSE_S: Final = 0.25
_LONGEST_PAUSE_S: Final = 30.0
_STEADY_AFTER_S: Final = 60.0
"""As for model workers."""
_PING_LIMIT_S: Final = 2.0

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _BoxDoor:
    key: BoxKey
    door: socket.socket
    plain: tuple[socket.socket, ...] = ()
    """Of programs that know of no proxy, once they are made; empty also while an earlier broker has them."""
    refusals: deque[tuple[int, str, str]] = field(default_factory=lambda: deque(maxlen=KEPT_REFUSALS))


def proxy_environment() -> dict[str, str]:
    """For programs in a box that has a way out. ALL_PROXY stays unset: some libraries would need a package for it."""
    names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
    own = "localhost,127.0.0.1,::1"
    return {**dict.fromkeys(names, PROXY_URL), "no_proxy": own, "NO_PROXY": own, "NODE_USE_ENV_PROXY": "1"}


class Network:
    """Event loop only. Watches boxes for `BoxManager`; `aclose` lets the broker go on."""

    def __init__(
        self,
        place: Path,
        allow: AllowList,
        broker_user: Callable[[], tuple[int, int] | None],
        note: Callable[[BoxKey, str, str, str], None],
        clock: Clock,
    ) -> None:
        """
        Args:
            place: a private folder for the broker's lock, socket and token.
            allow: what may be reached without asking.
            broker_user: whom the broker becomes when this daemon is root; asked at its start.
            note: called with box, `passed` or `denied`, destination and reason, for the audit log.
        """
        self._place = place
        self._allow = allow
        self._presets: tuple[Entry, ...] = ()
        self._broker_user = broker_user
        self._note = note
        self._questions = HostQuestions(clock, self._decide)
        self._boxes: dict[str, _BoxDoor] = {}
        self._early: deque[dict[str, object]] = deque(maxlen=UNTOLD_LIMIT)
        """Decisions of a time without a daemon, which the broker tells before their boxes are known here."""
        self._link: BrokerLink | None = None
        self._linking: asyncio.Task[None] | None = None
        self._making: set[asyncio.Task[None]] = set()
        self._closed = False
        self._pings = 0
        self._refusals = 0
        """Of all boxes, so that one number marks a moment for each of them."""
        self._early_ends = 0
        self._linked_at = 0.0
        self._answered: dict[int, asyncio.Future[None]] = {}

    async def start(self) -> None:
        """Find the broker that an earlier daemon left."""
        if await asyncio.to_thread(find_broker, self._place) is not None:
            await self._connect(start=False)

    def let_ask(self, asker: HostAsker) -> None:
        """From now on the person is asked about what is not listed; until then such connections wait."""
        self._questions.let_ask(asker)

    def allow(self, allow: AllowList) -> None:
        """Holds for the next connection, and for those that wait."""
        self._allow = allow
        self._say(SetAllowList(self._whole_list()))

    def add_presets(self, entries: Sequence[Entry]) -> None:
        """What the person's tools are configured to use, beside the list."""
        self._presets = tuple(entries)
        self._say(SetAllowList(self._whole_list()))

    def _whole_list(self) -> AllowList:
        return AllowList(tuple(dict.fromkeys((*self._allow.entries, *self._presets))))

    async def box_started(self, found: records.FoundBox) -> None:
        """A box runs, new or adopted; called before the first call in it. A box without a way out is not an error:
        its programs see a proxy that does not answer."""
        name = found.folder.name
        if found.record.key.profile not in WITH_NETWORK:
            return
        try:
            door = await asyncio.to_thread(take_door, found, PROXY_PORT)
        except BoxLost as error:
            _log.warning("the box %s has no network: %s", name, error)
            return
        if self._closed or name in self._boxes:
            door.close()
            return
        self._boxes[name] = _BoxDoor(found.record.key, door)
        self._questions.box_known(name, found.record.key)
        self._take_early(name)
        making = asyncio.create_task(self._make_plain(name, os.dup(door.fileno())), name=f"sockets in {name}")
        self._making.add(making)
        making.add_done_callback(self._making.discard)
        if self._link is not None:
            self._serve(name)
        else:
            self._watch(name)
        await asyncio.wait({making}, timeout=PLAIN_WAIT_S)

    async def _make_plain(self, name: str, door: int) -> None:
        """
        Args:
            door: a descriptor of its own; not a socket object, which would make the door block for the broker too.
        """
        try:
            sockets = await asyncio.to_thread(make_inside_sockets, door)
        except NoSockets as error:
            _log.info("box %s: an earlier broker serves programs that know no proxy, or nobody does: %s", name, error)
            return
        finally:
            os.close(door)
        box = self._boxes.get(name)
        if self._closed or box is None:
            for one in sockets:
                one.close()
            return
        box.plain = sockets
        if self._link is None:
            self._watch(name)
        else:
            self._serve_plain(name)

    def box_ended(self, found: records.FoundBox) -> None:
        known = self._boxes.pop(found.folder.name, None)
        if known is None:
            return
        self._unwatch(known)
        _close(known)
        self._questions.box_gone(found.folder.name)
        if self._link is not None:
            self._say(ForgetBox(found.folder.name))
            if not self._boxes:
                self._say(End())

    def refused_count(self, key: BoxKey) -> int:
        """To be given to `refused_since` after a call."""
        return self._refusals

    async def refused_since(self, key: BoxKey, count: int) -> tuple[tuple[str, str], ...]:
        """Destination and reason of what was refused to this box's programs since; each destination once."""
        await self._caught_up()
        found: dict[str, str] = {}
        for box in self._boxes.values():
            for number, to, reason in box.refusals if box.key == key else ():
                if number > count:
                    found.setdefault(to, reason)
        return tuple(found.items())

    async def aclose(self) -> None:
        """Let go of boxes and broker; both go on."""
        self._closed = True
        await self._questions.aclose()
        if self._linking is not None:
            self._linking.cancel()
            await asyncio.gather(self._linking, return_exceptions=True)
        if self._link is not None:
            link, self._link = self._link, None
            await link.aclose()
        await asyncio.gather(*self._making, return_exceptions=True)
        for box in self._boxes.values():
            self._unwatch(box)
            _close(box)
        self._boxes.clear()

    async def _caught_up(self) -> None:
        """Wait until everything the broker has decided so far is known here."""
        if self._link is None:
            return
        self._pings += 1
        answered = self._answered[self._pings] = asyncio.get_running_loop().create_future()
        self._say(Ping(self._pings))
        try:
            async with asyncio.timeout(_PING_LIMIT_S):
                await answered
        except TimeoutError:
            _log.warning("the egress broker does not answer")
        finally:
            self._answered = {number: future for number, future in self._answered.items() if future is not answered}

    def _watch(self, name: str) -> None:
        """Until the broker accepts there, a connection waits in the backlog; it is what starts the broker."""
        box = self._boxes[name]
        for one in (box.door, *box.plain):
            asyncio.get_running_loop().add_reader(one.fileno(), self._wanted)

    def _unwatch(self, box: _BoxDoor) -> None:
        for one in (box.door, *box.plain):
            asyncio.get_running_loop().remove_reader(one.fileno())

    def _wanted(self) -> None:
        for box in self._boxes.values():
            self._unwatch(box)
        if self._linking is None or self._linking.done():
            self._linking = asyncio.create_task(self._connect(start=True), name="start of the egress broker")

    async def _connect(self, start: bool) -> None:
        for attempt in range(_START_TRIES):
            # One that ends again and again, or does not start, is not started in a tight circle.
            failures = self._early_ends + attempt
            if start and failures:
                await asyncio.sleep(min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** (failures - 1)))
            try:
                found = await asyncio.to_thread(find_broker, self._place)
                if found is None and start:
                    found = await asyncio.to_thread(start_broker, self._place, self._broker_user())
                if found is None:
                    return
                link, known = await BrokerLink.connect(found, self._heard, self._lost)
            except (BrokerGone, OSError, subprocess.SubprocessError) as error:
                _log.warning("the egress broker is not there (try %d): %s", attempt + 1, error)
                continue
            self._link, self._linked_at = link, asyncio.get_running_loop().time()
            self._say(SetAllowList(self._whole_list()))
            for name in set(self._boxes) - known:
                self._serve(name)
            for name in self._boxes:
                self._serve_plain(name)
            if start and not self._boxes:
                # The last box ended meanwhile, when there was no broker yet that could be told.
                self._say(End())
            return
        if start and not self._closed:
            # Whoever waits in a backlog goes on waiting; the next look is as far away as the last pause was long.
            self._early_ends += 1
            for name in self._boxes:
                self._watch(name)

    def _serve(self, name: str) -> None:
        self._say(Serve(name), self._boxes[name].door.fileno())

    def _serve_plain(self, name: str) -> None:
        """Once more does no harm: the broker keeps those it has."""
        if plain := self._boxes[name].plain:
            self._say(ServePlain(name), *(one.fileno() for one in plain))

    def _say(self, order: Order, *descriptors: int) -> None:
        if self._link is None:
            return
        try:
            self._link.say(order, *descriptors)
        except BrokerGone as error:
            _log.warning("the egress broker was lost: %s", error)

    def _decide(self, ask: int, allowed: bool, for_s: float) -> None:
        self._say(Decide(ask, allowed, for_s))

    def _lost(self, link: BrokerLink) -> None:
        if self._link is link:
            self._link = None
            lived_s = asyncio.get_running_loop().time() - self._linked_at
            self._early_ends = self._early_ends + 1 if lived_s < _STEADY_AFTER_S else 0
            for waiting in self._answered.values():
                if not waiting.done():
                    waiting.set_result(None)
        if not self._closed:
            self._questions.broker_lost()
            for name in self._boxes:
                self._watch(name)

    def _heard(self, event: dict[str, object]) -> None:
        box = self._boxes.get(str(event.get("box")))
        to, kind = str(event.get("to")), event["is"]
        match kind:
            case "pong":
                number = event["number"]
                waiting = self._answered.get(number) if isinstance(number, int) else None
                if waiting is not None and not waiting.done():
                    waiting.set_result(None)
            case "ask":
                number = event["ask"]
                if isinstance(number, int):
                    self._questions.asked(number, str(event.get("box")), to)
            case "ask_over":
                number = event["ask"]
                if isinstance(number, int):
                    self._questions.over(number)
            case "denied" | "passed" if box is None:
                self._early.append(event)
            case "denied" if box is not None:
                reason = str(event.get("reason"))
                self._refusals += 1
                box.refusals.append((self._refusals, to, reason))
                self._note(box.key, "denied", to, reason)
            case "passed" if box is not None:
                self._note(box.key, "passed", to, str(event.get("by")))
            case _:
                return

    def _take_early(self, name: str) -> None:
        early = [event for event in self._early if event.get("box") == name]
        self._early = deque((event for event in self._early if event.get("box") != name), UNTOLD_LIMIT)
        for event in early:
            self._heard(event)


def _close(box: _BoxDoor) -> None:
    for one in (box.door, *box.plain):
        one.close()
