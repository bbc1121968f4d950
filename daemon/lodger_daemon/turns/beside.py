"""Commits that a turn does not wait for, and what may be shown only after them."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from lodger_daemon.turns.core.events import ConversationEvent
from lodger_daemon.turns.services import finish_regardless

HEAD_START_ROUNDS: Final = 4
"""Of the event loop, for what goes on beside a commit: in the first the next request is built, in the second it leaves.
The writer's thread needs the same interpreter, and the request is the one that is waited for."""


@dataclass(slots=True, eq=False)
class _Bar:
    """Stands in the line of events for a commit; what is behind it waits."""

    shown: list[ConversationEvent] = field(default_factory=list)
    """What tells of it."""


_Waiting: TypeAlias = ConversationEvent | _Bar


class CommitsBeside:
    """Of one conversation. Event loop only.

    What is published after a commit was begun is delivered after what tells of that commit, all in its order.
    """

    def __init__(self, deliver: Callable[[ConversationEvent], None]) -> None:
        self._deliver = deliver
        self._line: deque[_Waiting] = deque()
        self._telling: _Bar | None = None
        """Of which commit everything tells that is published now."""
        self._on_their_way: set[asyncio.Task[None]] = set()

    def publish(self, event: ConversationEvent) -> None:
        if self._telling is not None:
            self._telling.shown.append(event)
        elif self._line:
            self._line.append(event)
        else:
            self._deliver(event)

    async def settled(self) -> None:
        """Return once every commit begun so far has ended, well or not."""
        if self._on_their_way:
            await asyncio.wait(set(self._on_their_way))

    def hold_nothing(self) -> None:
        """The disk takes nothing for now, and a person wants to see what goes on: only what tells of commits waits."""
        self._line = deque(one for one in self._line if not isinstance(one, _Bar))
        self._deliver_first()

    async def run(self, commit: Coroutine[Any, Any, None], go_on: Callable[[], None]) -> None:
        """Call `go_on`, begin a commit after HEAD_START_ROUNDS, and return when it has ended, also when cancelled
        meanwhile.

        Args:
            go_on: what it publishes tells of the commit: delivered when that is on disk, never when it fails.

        Raises: what `commit` raises.
        """
        bar = self._telling = _Bar()
        self._line.append(bar)
        task = asyncio.ensure_future(self._committed(commit, bar))
        self._on_their_way.add(task)
        task.add_done_callback(self._on_their_way.discard)
        try:
            go_on()
        finally:
            self._telling = None
            await finish_regardless(task)

    async def _committed(self, commit: Coroutine[Any, Any, None], bar: _Bar) -> None:
        stored: list[ConversationEvent] = []
        try:
            for _ in range(HEAD_START_ROUNDS):
                await asyncio.sleep(0)
            await commit
            stored = bar.shown
        finally:
            if bar in self._line:
                place = self._line.index(bar)
                self._line.remove(bar)
                for event in reversed(stored):
                    self._line.insert(place, event)
                self._deliver_first()
            else:
                for event in stored:
                    self.publish(event)

    def _deliver_first(self) -> None:
        while self._line and not isinstance(first := self._line[0], _Bar):
            self._line.popleft()
            self._deliver(first)
