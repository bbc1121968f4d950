"""Noticing that a running box has lost a mount, before the next call in it and after each."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from lodger_sandbox.mounts import lost_mounts, mount_points
from lodger_tools.box.contract import Boxes, BoxKey

TOLD_PATHS: Final = 5


@dataclass(frozen=True, slots=True)
class MountsSeen:
    """Of one box at one moment."""

    runner_pid: int
    points: frozenset[str]


Look: TypeAlias = Callable[[], MountsSeen | None]
"""Some 0.1 ms; nothing but the kernel is asked. None when there is no box."""


class MountWatch:
    """Event loop only. A box that lost a mount is ended, with everything in it; the next call starts another."""

    def __init__(self, boxes: Boxes) -> None:
        self._boxes = boxes
        self._had: dict[BoxKey, tuple[int, frozenset[str]]] = {}
        """Of each box the pid of its runner and the mounts of its own that it had when it was first looked at."""

    async def check(self, key: BoxKey) -> str:
        """What the model has to know, empty when nothing is lost."""
        return await self.judge(key, self.look(key)())

    def look(self, key: BoxKey) -> Look:
        """How to see the mounts of the box that runs now."""
        pid = next((box.host_pid for box in self._boxes.statuses() if box.key == key), None)
        return (lambda: None) if pid is None else partial(_look, pid)

    async def judge(self, key: BoxKey, seen: MountsSeen | None) -> str:
        """As `check`, of what a look has seen."""
        running = {box.host_pid: box.key for box in self._boxes.statuses()}
        self._had = {one: had for one, had in self._had.items() if had[0] in running}
        if seen is None or running.get(seen.runner_pid) != key:
            # Another call may have started a box since.
            seen = self.look(key)()
        if seen is None:
            return ""
        known_pid, had = self._had.get(key, (0, seen.points))
        if known_pid != seen.runner_pid:
            # What the machine has mounted comes and goes in every box, and protects nothing.
            had = seen.points - (mount_points(os.getpid()) or frozenset())
            self._had[key] = (seen.runner_pid, had)
        lost = lost_mounts(key.workspace, had, seen.points)
        if not lost:
            return ""
        await self._boxes.end(key)
        self._had.pop(key, None)
        named = ", ".join(lost[:TOLD_PATHS]) + (" and more" if len(lost) > TOLD_PATHS else "")
        return (
            f"\n[Something outside replaced {named}, so this box no longer protected it. The box was ended with what "
            "ran in it; a new one protects it again.]"
        )


def _look(runner_pid: int) -> MountsSeen | None:
    points = mount_points(runner_pid)
    return None if points is None else MountsSeen(runner_pid, points)
