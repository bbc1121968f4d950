"""Commits that a turn does not wait for, and what may be shown only after them."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from lodger_daemon.turns.core.events import ConversationEvent
from lodger_daemon.turns.services import finish_regardless

HEAD_START_S: Final = 0.0015
"""For what goes on beside a commit: the next request and the writer's thread need the same interpreter, and the request
is the one that is waited for. Sending one takes about as long."""


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
        self._due: dict[asyncio.Event, None] = {}
        """Of commits not begun yet: set when somebody waits for them. A dict for its order."""

    def publish(self, event: ConversationEvent) -> None:
        if self._telling is not None:
            self._telling.shown.append(event)
        elif self._line:
            self._line.append(event)
        else:
            self._deliver(event)

    async def settled(self) -> None:
        """Return once every commit begun so far has ended, well or not."""
        for due in self._due:
            due.set()
        if self._on_their_way:
            await asyncio.wait(set(self._on_their_way))

    def hold_nothing(self) -> None:
        """The disk takes nothing for now, and a person wants to see what goes on: only what tells of commits waits."""
        self._line = deque(one for one in self._line if not isinstance(one, _Bar))
        self._deliver_first()

    async def run(self, commit: Coroutine[Any, Any, None], go_on: Callable[[], None]) -> None:
        """Call `go_on`, then begin a commit: after HEAD_START_S, or as soon as somebody waits for it. Return when it
        has ended, also when cancelled meanwhile.

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
            await self._head_start()
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

    async def _head_start(self) -> None:
        due = asyncio.Event()
        self._due[due] = None
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HEAD_START_S):
                    await due.wait()
        finally:
            del self._due[due]

    def _deliver_first(self) -> None:
        while self._line and not isinstance(first := self._line[0], _Bar):
            self._line.popleft()
            self._deliver(first)
