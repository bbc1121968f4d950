"""All boxes of this machine: started when needed, adopted from an earlier daemon, ended when idle."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar
from weakref import WeakValueDictionary

from lodger_tools.box import record as records
from lodger_tools.box.connected import Box, explained, note_outcome
from lodger_tools.box.contract import (
    BoxCall,
    BoxKey,
    BoxLost,
    BoxOutcome,
    BoxStatus,
    BoxUnavailable,
    OutputPart,
    OutputSink,
    StillRuns,
)
from lodger_tools.box.ending import END_WITHIN_S, end_connected, end_unconnected
from lodger_tools.box.link import BoxLink
from lodger_tools.box.opening import BoxWatcher, Opener, start_in_sandbox
from lodger_tools.box.starting import RequestFor, StartDetached, Starter, compile_runner

IDLE_LIMIT_S: Final = 300.0
"""ARCHITECTURE.md section 2."""
BOX_LIMIT: Final = 32

T = TypeVar("T")

_LOG: Final = logging.getLogger(__name__)


class BoxManager:
    """Implements `Boxes` and `BackgroundBoxes`. Make it inside a running event loop's program, `start` it, and `aclose`
    it at the end."""

    def __init__(
        self,
        boxes: Path,
        request_for: RequestFor,
        *,
        start_detached: StartDetached | None = None,
        extra_folders: tuple[tuple[str, str], ...] = (),
        watcher: BoxWatcher | None = None,
        idle_limit_s: float = IDLE_LIMIT_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            boxes: `Paths.boxes`.
            request_for: what a box for this key is; called in a thread. May raise BoxUnavailable.
            start_detached: the sandbox's; another one only in tests.
            extra_folders: see `RunnerStart`.
        """
        starter = Starter(boxes, request_for, start_detached or start_in_sandbox, extra_folders)
        self._opener = Opener(starter, watcher, monotonic)
        self._idle_limit_s = idle_limit_s
        self._monotonic = monotonic
        self._boxes: dict[BoxKey, Box] = {}
        self._retired: list[Box] = []
        self._locks: WeakValueDictionary[BoxKey, asyncio.Lock] = WeakValueDictionary()
        """Each for as long as somebody holds it or waits for it: of keys there is no end."""
        self._started: asyncio.Lock = asyncio.Lock()
        self._is_started = False
        self._janitor: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Adopt what an earlier daemon left; done by the first call too. Never raises for a broken box."""
        async with self._started:
            if self._is_started or self._opener.is_closed():
                return
            await asyncio.to_thread(compile_runner)
            for found in await asyncio.to_thread(records.find_boxes, self._opener.starter.boxes):
                await self._adopt(found)
            if self._opener.is_closed():
                return
            self._janitor = asyncio.create_task(self._end_idle_boxes())
            # Only now: a box started during the search would look like the remains of an ended one.
            self._is_started = True

    async def _adopt(self, found: records.FoundBox) -> None:
        if any(box.found.folder == found.folder for box in (*self._boxes.values(), *self._retired)):
            # Whoever looked for boxes before was cancelled in the midst of it.
            return
        box = await self._opener.adopt(found)
        if box is None:
            return
        if box.retired or found.record.key in self._boxes:
            box.retired = True
            self._retired.append(box)
        else:
            self._boxes[found.record.key] = box

    async def run(self, key: BoxKey, call: BoxCall, on_output: OutputSink | None = None) -> BoxOutcome:
        box = await self._box(key)
        async with self._at_work(box):
            outcome = await explained(box, await box.link.run(call, on_output))
            note_outcome(box, outcome, call.call_key)
            return outcome

    async def run_a_while(
        self, key: BoxKey, call: BoxCall, on_output: OutputSink | None, foreground_s: float
    ) -> BoxOutcome | StillRuns:
        box = await self._box(key)
        async with self._at_work(box):
            outcome = await box.link.run_a_while(call, on_output, foreground_s)
            if isinstance(outcome, BoxOutcome):
                outcome = await explained(box, outcome)
            note_outcome(box, outcome, call.call_key)
            return outcome

    async def begin(self, key: BoxKey, call: BoxCall) -> BoxOutcome | None:
        box = await self._box(key)
        async with self._at_work(box):
            outcome = await box.link.begin(call)
            note_outcome(box, outcome or StillRuns(b""), call.call_key)
            return outcome

    async def collect(self, key: BoxKey, call_key: str) -> BoxOutcome | None:
        found = await self._from_who_knows(key, lambda link: link.collect(call_key))
        if found is None:
            return None
        note_outcome(*found, call_key)
        return found[1]

    async def collect_a_while(self, key: BoxKey, call_key: str, foreground_s: float) -> BoxOutcome | StillRuns | None:
        found: tuple[Box, BoxOutcome | StillRuns] | None = await self._from_who_knows(
            key, lambda link: link.collect_a_while(call_key, foreground_s)
        )
        if found is None:
            return None
        note_outcome(*found, call_key)
        return found[1]

    async def watch(self, key: BoxKey, call_key: str) -> BoxOutcome | None:
        # Not counted as a call: what runs in the background holds up neither memory nor the box's other work.
        found = await self._from_who_knows(key, lambda link: link.watch(call_key), counts=False)
        if found is None:
            return None
        note_outcome(*found, call_key)
        return await explained(*found)

    async def read(self, key: BoxKey, call_key: str, offset: int, limit_bytes: int) -> OutputPart | None:
        with contextlib.suppress(TimeoutError):
            found = await self._from_who_knows(key, lambda link: link.read(call_key, offset, limit_bytes))
            return None if found is None else found[1]
        return None

    async def write(self, key: BoxKey, call_key: str, data: bytes) -> bool | None:
        with contextlib.suppress(TimeoutError):
            found = await self._from_who_knows(key, lambda link: link.write(call_key, data))
            return None if found is None else found[1]
        return False

    async def cancel(self, key: BoxKey, call_key: str) -> None:
        for box in self._of(key):
            with contextlib.suppress(BoxLost):
                box.link.cancel(call_key)

    def _of(self, key: BoxKey) -> list[Box]:
        retired = [box for box in self._retired if box.found.record.key == key]
        return [*retired, self._boxes[key]] if key in self._boxes else retired

    async def _from_who_knows(
        self, key: BoxKey, ask: Callable[[BoxLink], Awaitable[T | None]], counts: bool = True
    ) -> tuple[Box, T] | None:
        """The first answer of a box that knows what it is asked about, and that box."""
        if not self._is_started:
            await self.start()
        for box in self._of(key):
            with contextlib.suppress(BoxLost):
                async with self._at_work(box, counts):
                    answer = await ask(box.link)
                if answer is not None:
                    return box, answer
        return None

    @contextlib.asynccontextmanager
    async def _at_work(self, box: Box, counts: bool = True) -> AsyncIterator[None]:
        """A box whose connection is lost meanwhile is buried."""
        box.calls += counts
        try:
            yield
        except BoxLost:
            await self._bury(box)
            raise
        finally:
            box.calls -= counts
            box.idle_since = self._monotonic()

    async def stop_all(self, key: BoxKey) -> int:
        box = self._boxes.get(key)
        return 0 if box is None else await self._stop_in(box, "stop_all")

    async def stop_leftovers(self, key: BoxKey) -> int:
        """Kill what earlier calls left running in the boxes of this key; returns how many processes that were."""
        return sum([await self._stop_in(box, "stop_leftovers") for box in self._of(key)])

    async def _stop_in(self, box: Box, what: str) -> int:
        try:
            answer = await box.link.ask(what)
        except (BoxLost, TimeoutError):
            await self._bury(box)
            return 0
        box.leftovers = 0
        stopped = answer.get("stopped")
        return stopped if isinstance(stopped, int) else 0

    async def end(self, key: BoxKey) -> None:
        async with self._lock(key):
            for box in [self._boxes.get(key), *self._retired]:
                if box is not None and box.found.record.key == key:
                    await self._end_box(box)

    async def retire_changed(self, agent_id: str) -> None:
        """Boxes of an agent that would be started differently now begin no more calls: the next call has a new box.
        What runs in the old ones goes on to its end."""
        for box in [box for box in self._boxes.values() if box.found.record.key.agent_id == agent_id]:
            wanted = await asyncio.to_thread(self._opener.still_wanted, box.found)
            if not wanted and self._boxes.get(box.found.record.key) is box:
                del self._boxes[box.found.record.key]
                box.retired = True
                self._retired.append(box)

    def statuses(self) -> tuple[BoxStatus, ...]:
        now = self._monotonic()
        return tuple(
            BoxStatus(
                key=box.found.record.key,
                host_pid=box.found.record.runner_pid,
                running_calls=box.calls,
                leftovers=box.leftovers,
                idle_s=0.0 if box.calls or box.background else max(0.0, now - box.idle_since),
                background=len(box.background),
            )
            for box in (*self._boxes.values(), *self._retired)
        )

    async def leave(self) -> None:
        """As `aclose`, at a stop in good order: boxes in which nothing runs are ended first, within END_WITHIN_S."""
        await self._stop_janitor()
        async with asyncio.TaskGroup() as group:
            for box in (*self._boxes.values(), *self._retired):
                if not box.calls and not box.background and not box.link.closed.is_set():
                    group.create_task(self._end_unless_used(box))
        for box in (*self._boxes.values(), *self._retired):
            key = box.found.record.key
            _LOG.info("the box of %s in %s goes on: work of it still runs", key.agent_id, key.workspace)
        await self.aclose()

    async def aclose(self) -> None:
        """Let go of all boxes without ending them. Calls in flight go on in their boxes; here they end with
        CancelledError, and a later daemon collects them. So call this before cancelling the turns.

        From now on no box is started or adopted; one that was being started is ended before this returns, within
        END_WITHIN_S."""
        self._opener.close()
        await self._stop_janitor()
        for box in (*self._boxes.values(), *self._retired):
            box.link.close()
        self._boxes.clear()
        self._retired.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_WITHIN_S):
                for lock in (self._started, *self._locks.values()):
                    async with lock:
                        pass

    async def _stop_janitor(self) -> None:
        if self._janitor is not None:
            self._janitor.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._janitor

    def _lock(self, key: BoxKey) -> asyncio.Lock:
        return self._locks.setdefault(key, asyncio.Lock())

    async def _box(self, key: BoxKey) -> Box:
        """Raises: BoxUnavailable."""
        box = self._boxes.get(key)
        if box is not None and not box.link.closed.is_set():
            return box
        if not self._is_started:
            await self.start()
        async with self._lock(key):
            box = self._boxes.get(key)
            if box is not None and not box.link.closed.is_set():
                return box
            if box is not None:
                await self._bury(box)
            await self._make_room()
            box = await self._opener.start(key)
            self._boxes[key] = box
            return box

    async def _bury(self, box: Box) -> None:
        """A box whose connection was lost is ended for certain: what it does later nobody would know."""
        self._forget(box)
        box.link.close()
        await asyncio.to_thread(end_unconnected, box.found)

    async def _end_box(self, box: Box) -> None:
        self._forget(box)
        await end_connected(box)

    def _forget(self, box: Box) -> None:
        self._opener.tell_of_end(box.found)
        key = box.found.record.key
        if self._boxes.get(key) is box:
            del self._boxes[key]
        if box in self._retired:
            self._retired.remove(box)

    async def _make_room(self) -> None:
        """Raises: BoxUnavailable when every box is in use."""
        if len(self._boxes) + len(self._retired) < BOX_LIMIT:
            return
        idle = [
            box
            for box in (*self._retired, *self._boxes.values())
            if not box.calls and not box.leftovers and not box.background
        ]
        if not idle:
            raise BoxUnavailable(f"{BOX_LIMIT} boxes are in use on this machine; end some work first.")
        await self._end_box(min(idle, key=lambda box: box.idle_since))

    async def _end_idle_boxes(self) -> None:
        """The janitor; runs for as long as the manager."""
        while True:
            await asyncio.sleep(min(30.0, self._idle_limit_s / 2))
            for box in (*self._boxes.values(), *self._retired):
                await self._look_at(box)

    async def _look_at(self, box: Box) -> None:
        if box.link.closed.is_set():
            if not box.calls:
                await self._bury(box)
            return
        if box.calls or (not box.retired and self._monotonic() - box.idle_since < self._idle_limit_s):
            return
        await self._end_unless_used(box)

    async def _end_unless_used(self, box: Box) -> None:
        try:
            listing = await box.link.ask("list")
        except (BoxLost, TimeoutError):
            await self._bury(box)
            return
        leftovers, running = listing.get("leftovers"), listing.get("running")
        box.leftovers = leftovers if isinstance(leftovers, int) else 0
        if not running:
            box.background.clear()
        if not box.leftovers and not running and not box.calls:
            async with self._lock(box.found.record.key):
                if not box.calls:
                    await self._end_box(box)
