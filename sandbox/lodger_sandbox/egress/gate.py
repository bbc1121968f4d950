"""Whether a box may go somewhere: by the list, by what a person granted, or by asking while the connection waits."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Final, TypeAlias, assert_never

from lodger_sandbox.egress.core.addresses import IpAddress
from lodger_sandbox.egress.core.allow import AllowList, Pass, Refused, Unlisted
from lodger_sandbox.egress.core.hosts import Destination
from lodger_sandbox.egress.nearby import own_networks

ASK_LIMIT_S: Final = 30.0
"""A connection waits this long for a person; most programs give up after 30 to 60 s by themselves."""
PENDING_LIMIT: Final = 64
"""Destinations asked about at once, per box: a program that tries thousands must not bury the person."""
GRANT_LIMIT: Final = 256
UNTOLD_LIMIT: Final = 1000
"""Events kept for the next daemon."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A person has to be asked; many connections to one place are one question."""

    ask: int
    box: str
    to: Destination


@dataclass(frozen=True, slots=True)
class AskOver:
    """Nobody waits for this answer any more."""

    ask: int


@dataclass(frozen=True, slots=True)
class Passed:
    box: str
    to: Destination
    by: str
    """The entry or grant that let it through."""


@dataclass(frozen=True, slots=True)
class Denied:
    box: str
    to: Destination
    reason: str


GateEvent: TypeAlias = Asked | AskOver | Passed | Denied


class NotAllowed(Exception):
    """The text may be shown to the program in the box."""


@dataclass(slots=True)
class _Pending:
    ask: int
    to: Destination
    answer: asyncio.Future[bool]
    waiting: int = 0


@dataclass(slots=True)
class _Box:
    pending: dict[Destination, _Pending] = field(default_factory=dict)
    remembered: dict[Destination, tuple[bool, float]] = field(default_factory=dict)
    """A person's word, and the monotonic time until which it holds."""


class Gate:
    """Event loop only."""

    def __init__(self, tell: Callable[[GateEvent], None], ask_limit_s: float = ASK_LIMIT_S) -> None:
        self._tell_daemon = tell
        self._ask_limit_s = ask_limit_s
        self._allow = AllowList()
        self._boxes: dict[str, _Box] = {}
        self._numbers = count(1)
        self._asks: dict[int, _Pending] = {}
        self._untold: deque[GateEvent] = deque(maxlen=UNTOLD_LIMIT)
        self._daemon_listens = False

    def set_allow_list(self, allow: AllowList) -> None:
        """Also decides what is being asked about, as far as the new list does."""
        self._allow = allow
        for pending in list(self._asks.values()):
            if isinstance(allow.judge(pending.to), Pass) and not pending.answer.done():
                pending.answer.set_result(True)

    def daemon_came(self) -> None:
        """Tell it what it missed, then every open question again."""
        self._daemon_listens = True
        while self._untold:
            self._tell_daemon(self._untold.popleft())
        for name, box in self._boxes.items():
            for pending in box.pending.values():
                self._tell_daemon(Asked(pending.ask, name, pending.to))

    def daemon_left(self) -> None:
        self._daemon_listens = False

    def forget_box(self, box: str) -> None:
        known = self._boxes.pop(box, None)
        for pending in known.pending.values() if known is not None else ():
            if not pending.answer.done():
                pending.answer.set_result(False)

    def decide(self, ask: int, allowed: bool, grant_s: float) -> None:
        """A person's answer.

        Args:
            grant_s: how long the same holds for this box and this place without being asked again.
        """
        pending = self._asks.get(ask)
        if pending is None or pending.answer.done():
            return
        if grant_s > 0:
            for box in self._boxes.values():
                if box.pending.get(pending.to) is pending:
                    _remember(box, pending.to, allowed, grant_s)
        pending.answer.set_result(allowed)

    async def admit(self, box: str, to: Destination) -> None:
        """Returns when the box may go there; what the name resolves to is still to be judged.

        Raises: NotAllowed.
        """
        match self._allow.judge(to):
            case Pass(entry):
                self._tell(Passed(box, to, str(entry)))
            case Refused(reason):
                raise self.denied(box, to, reason)
            case Unlisted():
                known = self._boxes.setdefault(box, _Box())
                word = _word(known, to)
                if word is True:
                    self._tell(Passed(box, to, "granted"))
                elif word is None and await self._asked(box, known, to):
                    self._tell(Passed(box, to, "a person"))
                else:
                    raise self.denied(box, to, "it is not on the list of allowed hosts and nobody allowed it")
            case other:
                assert_never(other)

    def judge_address(self, to: Destination, address: IpAddress) -> None:
        """Of the address that is about to be dialled; a name may have others that are. Raises: NotAllowed."""
        refused = self._allow.judge_address(address, to.port, own_networks)
        if refused is not None:
            raise NotAllowed(refused.reason)

    def denied(self, box: str, to: Destination, reason: str) -> NotAllowed:
        """Tells of it; to be raised."""
        self._tell(Denied(box, to, reason))
        return NotAllowed(f"{to}: {reason}")

    async def _asked(self, name: str, box: _Box, to: Destination) -> bool:
        pending = box.pending.get(to)
        if pending is None:
            if len(box.pending) >= PENDING_LIMIT:
                return False
            pending = _Pending(next(self._numbers), to, asyncio.get_running_loop().create_future())
            box.pending[to] = self._asks[pending.ask] = pending
            if self._daemon_listens:
                self._tell_daemon(Asked(pending.ask, name, to))
        pending.waiting += 1
        try:
            async with asyncio.timeout(self._ask_limit_s):
                return await asyncio.shield(pending.answer)
        except TimeoutError:
            return False
        finally:
            pending.waiting -= 1
            if not pending.waiting:
                self._close(box, pending)

    def _close(self, box: _Box, pending: _Pending) -> None:
        if box.pending.get(pending.to) is pending:
            del box.pending[pending.to]
        del self._asks[pending.ask]
        if not pending.answer.done():
            pending.answer.cancel()
        if self._daemon_listens:
            self._tell_daemon(AskOver(pending.ask))

    def _tell(self, event: GateEvent) -> None:
        if self._daemon_listens:
            self._tell_daemon(event)
        else:
            self._untold.append(event)


def _word(box: _Box, to: Destination) -> bool | None:
    allowed, until = box.remembered.get(to, (False, 0.0))
    return allowed if until > asyncio.get_running_loop().time() else None


def _remember(box: _Box, to: Destination, allowed: bool, for_s: float) -> None:
    now = asyncio.get_running_loop().time()
    for old in [place for place, (_, until) in box.remembered.items() if until <= now]:
        del box.remembered[old]
    if len(box.remembered) < GRANT_LIMIT:
        box.remembered[to] = (allowed, now + for_s)
