"""The memory of all processes of this box together: the kernel limits each alone where no cgroup is to be had.

The limit is the one that each process has for itself (RLIMIT_DATA), which the runner was started under like the others.
"""

from __future__ import annotations

import os

from lodger_tools.runner.children import SIGKILL, Process, ancestors, kill_quietly

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lodger_tools.runner.calls import Call, CallBook
    from lodger_tools.runner.children import Children
    from lodger_tools.runner.poll import Poll

LOOK_S = 1.0
CLOSE_LOOK_S = 0.1
"""From half of the limit on: filling the other half takes a few processes some tenths of a second."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class MemoryWatch:
    """Looks while anything runs. Over the limit, what uses most is killed: with its whole call, which says so."""

    __slots__ = ("_armed", "_book", "_children", "_limit_bytes", "_poll")

    def __init__(self, poll: Poll, children: Children, book: CallBook) -> None:
        self._poll = poll
        self._children = children
        self._book = book
        self._armed = False
        self._limit_bytes = -1

    def arm(self) -> None:
        """Something was started."""
        if not self._armed:
            self._armed = True
            self._poll.after(LOOK_S, self._look)

    def _look(self) -> None:
        if self._limit_bytes < 0:
            # Loading it would cost each box a part of its start.
            import resource

            self._limit_bytes = max(0, resource.getrlimit(resource.RLIMIT_DATA)[0])
        processes = self._children.processes() if self._limit_bytes else []
        if not processes:
            self._armed = False
            return
        used = {process.pid: resident_bytes(process.pid) for process in processes}
        near = sum(used.values()) > self._limit_bytes // 2
        if sum(used.values()) > self._limit_bytes:
            # Pages that several have in common were counted for each of them.
            used = {pid: own_bytes(pid, resident) for pid, resident in used.items()}
            if sum(used.values()) > self._limit_bytes:
                self._end_largest(processes, used)
        self._poll.after(CLOSE_LOOK_S if near else LOOK_S, self._look)

    def _end_largest(self, processes: list[Process], used: dict[int, int]) -> None:
        table = {process.pid: process for process in processes}
        largest = max(processes, key=lambda process: used[process.pid])
        call = self._call_of(largest, table)
        if call is not None:
            call.out_of_memory()
        kill_quietly(largest.pid, SIGKILL)

    def _call_of(self, process: Process, table: dict[int, Process]) -> Call | None:
        mine = {process.pid, process.session, *ancestors(process, table)}
        return next((call for call in self._book.running() if call.pid in mine), None)


def resident_bytes(pid: int) -> int:
    data = read_small(f"/proc/{pid}/statm")
    return int(data.split()[1]) * PAGE_BYTES if data else 0


def own_bytes(pid: int, resident: int) -> int:
    """With shared pages in equal parts for each who shares them; all that is resident when that is not to be had."""
    for line in read_small(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return resident


def read_small(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, 4096)
    except OSError:
        return b""
    finally:
        os.close(fd)
