"""The boxes that tools run in, with the guard of the workspace's repository and the watch over their mounts around each
call that can change files."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, TypeVar

from lodger_daemon.workspace_guard.contract import GitAsker
from lodger_daemon.workspace_guard.git_guard import GitGuard
from lodger_daemon.workspace_guard.mount_watch import MountWatch
from lodger_tools.box.contract import (
    BoxCall,
    BoxKey,
    BoxOutcome,
    BoxProfile,
    BoxStatus,
    ChangesFiles,
    OutputPart,
    OutputSink,
    StillRuns,
)
from lodger_tools.box.manager import BoxManager

GUARDED: Final = frozenset({BoxProfile.AGENT, BoxProfile.STRICT})
T = TypeVar("T", BoxOutcome, BoxOutcome | StillRuns, BoxOutcome | None)


class GuardedBoxes:
    """Implements `Boxes` and `BackgroundBoxes`."""

    def __init__(self, boxes: BoxManager, guard: GitGuard) -> None:
        self._boxes = boxes
        self._guard = guard
        self._mounts = MountWatch(boxes)

    def let_ask(self, asker: GitAsker) -> None:
        """From now on the person is asked about what the guard puts back."""
        self._guard.let_ask(asker)

    async def run(self, key: BoxKey, call: BoxCall, on_output: OutputSink | None = None) -> BoxOutcome:
        return await self._around(key, call, lambda: self._boxes.run(key, call, on_output))

    async def run_a_while(
        self, key: BoxKey, call: BoxCall, on_output: OutputSink | None, foreground_s: float
    ) -> BoxOutcome | StillRuns:
        return await self._around(key, call, lambda: self._boxes.run_a_while(key, call, on_output, foreground_s))

    async def begin(self, key: BoxKey, call: BoxCall) -> BoxOutcome | None:
        return await self._around(key, call, lambda: self._boxes.begin(key, call))

    async def collect(self, key: BoxKey, call_key: str) -> BoxOutcome | None:
        return await self._afterwards(key, await self._boxes.collect(key, call_key))

    async def collect_a_while(self, key: BoxKey, call_key: str, foreground_s: float) -> BoxOutcome | StillRuns | None:
        found = await self._boxes.collect_a_while(key, call_key, foreground_s)
        return found if isinstance(found, StillRuns) else await self._afterwards(key, found)

    async def watch(self, key: BoxKey, call_key: str) -> BoxOutcome | None:
        return await self._afterwards(key, await self._boxes.watch(key, call_key))

    async def read(self, key: BoxKey, call_key: str, offset: int, limit_bytes: int) -> OutputPart | None:
        part = await self._boxes.read(key, call_key, offset, limit_bytes)
        if part is not None and key.profile in GUARDED:
            await self._guard.look(key)
        return part

    async def write(self, key: BoxKey, call_key: str, data: bytes) -> bool | None:
        """Not after a mount was lost: then the box has ended and nobody knows the call."""
        if key.profile in GUARDED:
            await self._mounts.check(key)
        return await self._boxes.write(key, call_key, data)

    async def cancel(self, key: BoxKey, call_key: str) -> None:
        await self._boxes.cancel(key, call_key)

    async def stop_all(self, key: BoxKey) -> int:
        return await self._boxes.stop_all(key)

    async def end(self, key: BoxKey) -> None:
        await self._boxes.end(key)

    def statuses(self) -> tuple[BoxStatus, ...]:
        return self._boxes.statuses()

    async def aclose(self) -> None:
        await self._boxes.aclose()

    async def _around(self, key: BoxKey, call: BoxCall, run: Callable[[], Awaitable[T]]) -> T:
        if key.profile not in GUARDED or not isinstance(call.operation, ChangesFiles):
            return await run()
        seen = await self._guard.begin(key, self._mounts.look(key))
        try:
            lost = await self._mounts.judge(key, seen)
            outcome = await run()
        except BaseException:
            self._guard.lose(key)
            raise
        note, seen = await self._guard.end(key, self._mounts.look(key))
        return _noted(outcome, lost + await self._mounts.judge(key, seen) + note)

    async def _afterwards(self, key: BoxKey, outcome: BoxOutcome | None) -> BoxOutcome | None:
        if outcome is None or key.profile not in GUARDED:
            return outcome
        note, _ = await self._guard.end(key, lambda: None, begun=False)
        return _noted(outcome, note)


def _noted(outcome: T, note: str) -> T:
    return replace(outcome, text=outcome.text + note) if note and isinstance(outcome, BoxOutcome) else outcome
