"""The memory of this box as a whole: without a control group the kernel limits each process alone, and with one it
does not say why it killed what.

The limit is the one that each process has for itself (RLIMIT_DATA), which the runner was started under like the others.
"""

from __future__ import annotations

from lodger_tools.runner.children import SIGKILL, Process, ancestors, kill_quietly

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lodger_tools.runner.calls import Call, CallBook
    from lodger_tools.runner.children import Children
    from lodger_tools.runner.memory_use import Use
    from lodger_tools.runner.poll import Poll

LOOK_S = 1.0
CLOSE_LOOK_S = 0.1
"""From half of the limit on: filling the other half takes a few processes some tenths of a second."""
WORK_SHARE = 8
"""Processes may have this part of the limit whatever lies in files: else nothing could run that removes them. The sizes
of the private folders are limits of their own."""


class MemoryWatch:
    """Looks while anything runs. Over the limit, what uses most is killed: with its whole call, which says so."""

    __slots__ = ("_armed", "_book", "_children", "_limit_bytes", "_most_sockets", "_places", "_poll")

    def __init__(self, poll: Poll, children: Children, book: CallBook) -> None:
        self._poll = poll
        self._children = children
        self._book = book
        self._armed = False
        self._limit_bytes = -1
        self._most_sockets = 0
        """So many could hold as much as the limit is; 0 where the kernel counts what waits in them."""
        self._places: tuple[str, ...] = ()

    def arm(self) -> None:
        """Something was started."""
        if not self._armed:
            self._armed = True
            self._poll.after(LOOK_S, self._look)

    def _look(self) -> None:
        # Loading these would cost each box a part of its start.
        from lodger_tools.runner import memory_use

        if self._limit_bytes < 0:
            import resource

            self._limit_bytes = max(0, resource.getrlimit(resource.RLIMIT_DATA)[0])
            self._places = memory_use.private_places()
            if not memory_use.has_memory_files():
                self._most_sockets = self._limit_bytes // memory_use.socket_bytes()
        processes = self._children.processes() if self._limit_bytes else []
        if not processes:
            self._armed = False
            return
        sockets = memory_use.sockets_there() if self._most_sockets else 0
        if sockets > self._most_sockets:
            held = memory_use.sockets_of([process.pid for process in processes], sockets)
            self._end_largest(processes, held)
        use = memory_use.Use([process.pid for process in processes], self._places)
        near = use.at_most_bytes > self._limit_bytes // 2 or sockets > self._most_sockets // 2
        if use.at_most_bytes > self._limit_bytes:
            self._look_closely(processes, use)
        self._poll.after(CLOSE_LOOK_S if near else LOOK_S, self._look)

    def _look_closely(self, processes: list[Process], use: Use) -> None:
        from lodger_tools.runner.memory_use import drop_abandoned

        used = use.exactly()
        of_processes = sum(used.values()) + use.held_bytes
        if of_processes + use.kept_bytes <= self._limit_bytes:
            return
        drop_abandoned([process.pid for process in processes])
        if of_processes > self._limit_bytes // WORK_SHARE:
            self._end_largest(processes, {pid: size + use.held.get(pid, 0) for pid, size in used.items()})

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
