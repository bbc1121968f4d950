"""Whom the kernel kills when memory runs out: what was started, rather than the runner, with which all would end.

It goes by what a process has mapped, which is little where much lies in files in memory, so the rank has to decide.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

OF_CHILDREN = 500
"""As if half of the machine's memory were its own (proc_pid_oom_score_adj(5))."""
NO_RANK = -1
NO_PID = -1


def open_own_rank() -> int:
    """A descriptor; `NO_RANK` where the kernel has none. To be had only while this process is dumpable: afterwards the
    file is root's."""
    try:
        return os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return NO_RANK


class MemoryRank:
    __slots__ = ("_fd", "_own")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._own = OF_CHILDREN if fd == NO_RANK else int(os.pread(fd, 16, 0))

    def start(self, starting: Callable[[], int]) -> int:
        """Start a process that has the rank of children from its birth on. A rank that is set once it runs comes too
        late under pressure, so it is inherited: for the moment of the start the runner has it itself."""
        if self._own >= OF_CHILDREN:
            return starting()
        self._take(OF_CHILDREN)
        pid = NO_PID
        try:
            pid = starting()
        finally:
            # A forked child comes by here too, and the descriptor is the parent's: it may be at its next start.
            if pid != 0:
                self._take(self._own)
        return pid

    def _take(self, rank: int) -> None:
        try:
            os.pwrite(self._fd, b"%d" % rank, 0)
        except OSError:
            pass
