"""From what the broker asks to what a person is asked: one question for each box at a time, several hosts in one.

A program that tries one host after another cannot bury the person: what comes up while a question is open waits for the
next one, and the broker ends its waiting in time.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from lodger_daemon.clock import Clock
from lodger_daemon.network.contract import HostAsker
from lodger_tools.box.contract import BoxKey

GATHER_S: Final = 1.0
"""Hosts that come up this soon after each other are one question: an installer asks for two or three at once."""
GRANT_S: Final = 10 * 60.0
DENIAL_S: Final = 60.0
"""Programs try again by themselves; a person who said no is not asked again for that."""

TOLD_LIMIT: Final = 16
"""Of one box, for as long as it lives: hosts that a person is told of because nobody could be asked."""
_TOLD: Final = (
    "A program in the box wanted to reach {host} and could not: no turn ran in which you could have been asked. What "
    "is to be reached without asking stands in the settings under network.allow."
)

_log = logging.getLogger(__name__)


class HostQuestions:
    """Event loop only. Asks that come before anybody can be asked, or before their box is known, wait."""

    def __init__(self, clock: Clock, decide: Callable[[int, bool, float], None]) -> None:
        """
        Args:
            decide: tells the broker: number of the ask, whether allowed, and for how many seconds that holds.
        """
        self._clock = clock
        self._decide = decide
        self._asker: HostAsker | None = None
        self._boxes: dict[str, BoxKey] = {}
        self._waiting: dict[str, dict[int, str]] = {}
        """By box: number and destination of what the broker asks and nobody was asked yet."""
        self._open: dict[str, dict[int, str]] = {}
        """By box: what its open question is about."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._told: dict[str, set[str]] = {}
        """By box: what a person was told of."""
        self._closed = False

    def let_ask(self, asker: HostAsker) -> None:
        self._asker = asker
        for box in tuple(self._waiting):
            self._begin(box)

    def box_known(self, box: str, key: BoxKey) -> None:
        self._boxes[box] = key
        self._begin(box)

    def box_gone(self, box: str) -> None:
        self._boxes.pop(box, None)
        self._waiting.pop(box, None)
        self._told.pop(box, None)

    def asked(self, ask: int, box: str, to: str) -> None:
        self._waiting.setdefault(box, {})[ask] = to
        self._begin(box)

    def over(self, ask: int) -> None:
        """The broker needs no answer to this any more."""
        for asks in self._waiting.values():
            asks.pop(ask, None)
        for box, asks in self._open.items():
            if asks.pop(ask, None) is not None and not asks:
                self._tasks[box].cancel()

    def broker_lost(self) -> None:
        """Whoever waited there waits no more, or is asked about again by the same broker under the same numbers."""
        self._waiting.clear()
        for task in self._tasks.values():
            task.cancel()

    async def aclose(self) -> None:
        self._closed = True
        tasks = tuple(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, box: str) -> None:
        key, asker = self._boxes.get(box), self._asker
        if self._closed or asker is None or key is None or not self._waiting.get(box):
            return
        if not asker.can_ask(key):
            for ask, to in self._waiting.pop(box).items():
                self._decide(ask, False, 0.0)
                self._tell(box, key, asker, to)
        elif box not in self._tasks:
            task = self._tasks[box] = asyncio.create_task(self._ask(box, key, asker), name=f"hosts for {box}")
            task.add_done_callback(lambda _: self._ended(box))

    def _tell(self, box: str, key: BoxKey, asker: HostAsker, to: str) -> None:
        told = self._told.setdefault(box, set())
        if to not in told and len(told) < TOLD_LIMIT and asker.tell(key, _TOLD.format(host=to)):
            told.add(to)

    def _ended(self, box: str) -> None:
        del self._tasks[box]
        self._open.pop(box, None)
        self._begin(box)

    async def _ask(self, box: str, key: BoxKey, asker: HostAsker) -> None:
        await self._clock.sleep(GATHER_S)
        asks = self._open[box] = self._waiting.pop(box, {})
        if not asks:
            return
        try:
            allowed = await asker.ask_about_hosts(key, tuple(dict.fromkeys(asks.values())))
        except Exception:  # noqa: BLE001 - logged just below
            # Whatever keeps a person from being asked, the program in the box must not wait for them.
            _log.exception("nobody could be asked about the network")
            allowed = None
        for ask, to in asks.items():
            if allowed is None:
                self._decide(ask, False, 0.0)
            else:
                self._decide(ask, to in allowed, GRANT_S if to in allowed else DENIAL_S)
