"""Noticing that a running box has lost a mount, before the next call in it and after each."""

import os
from typing import Final

from lodger_sandbox.mounts import lost_mounts, mount_points
from lodger_tools.box.contract import Boxes, BoxKey

TOLD_PATHS: Final = 5


class MountWatch:
    """Event loop only. A box that lost a mount is ended, with everything in it; the next call starts another."""

    def __init__(self, boxes: Boxes) -> None:
        self._boxes = boxes
        self._had: dict[BoxKey, tuple[int, frozenset[str]]] = {}
        """Of each box the pid of its runner and the mounts of its own that it had when it was first looked at."""

    async def check(self, key: BoxKey) -> str:
        """What the model has to know, empty when nothing is lost."""
        running = {box.host_pid: box.key for box in self._boxes.statuses()}
        self._had = {one: had for one, had in self._had.items() if had[0] in running}
        pid = next((pid for pid, one in running.items() if one == key), None)
        if pid is None:
            return ""
        # Not in a thread: nothing but the kernel is asked, and each call of a tool waits for it.
        has = mount_points(pid)
        if has is None:
            return ""
        known_pid, had = self._had.get(key, (0, has))
        if known_pid != pid:
            # What the machine has mounted comes and goes in every box, and protects nothing.
            had = has - (mount_points(os.getpid()) or frozenset())
            self._had[key] = (pid, had)
        lost = lost_mounts(key.workspace, had, has)
        if not lost:
            return ""
        await self._boxes.end(key)
        self._had.pop(key, None)
        named = ", ".join(lost[:TOLD_PATHS]) + (" and more" if len(lost) > TOLD_PATHS else "")
        return (
            f"\n[Something outside replaced {named}, so this box no longer protected it. The box was ended with what "
            "ran in it; a new one protects it again.]"
        )
