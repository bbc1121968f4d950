"""Starting, reaping, counting and killing processes. As PID 1 the runner is the parent of every orphan of its box."""

# pathlib would cost the runner 8 ms of its start.
# ruff: noqa: PTH208
from __future__ import annotations

import os
import sys
from time import CLOCK_BOOTTIME, clock_gettime

from lodger_tools.runner.spawning import Spawner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lodger_tools.runner.memory_rank import MemoryRank
    from lodger_tools.runner.poll import Poll

SIGKILL, SIGTERM, SIGCONT, SIGSTOP = 9, 15, 18, 19
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Process:
    """One line of the process table, without zombies."""

    __slots__ = ("parent", "pid", "session", "start_ticks")

    def __init__(self, pid: int, parent: int, session: int, start_ticks: int) -> None:
        self.pid = pid
        self.parent = parent
        self.session = session
        self.start_ticks = start_ticks


class Children:
    __slots__ = ("_on_exit", "_own_pid", "_rank", "_spawner", "alone")

    def __init__(self, poll: Poll, rank: MemoryRank) -> None:
        self._rank = rank
        self._spawner = Spawner()
        self._on_exit: dict[int, Callable[[int], None]] = {}
        self._own_pid = os.getpid()
        self.alone = True
        """Whether no descendant of ours exists, as the kernel said at the last reaping."""
        poll.on_child = self.reap

    def spawn(
        self,
        argv: list[str],
        cwd: str,
        environment: Mapping[str, str],
        stdin: int | None,
        stdout: int,
        stderr: int,
        on_exit: Callable[[int], None],
        terminal: str | None = None,
    ) -> int:
        """Start a program in a session of its own; returns its pid, which is also its group and session.

        With the name of a terminal, that is what it controls and all that it reads and writes.

        Raises: OSError.
        """
        spawner = self._spawner
        if terminal is None:
            pid = self._rank.start(lambda: spawner.start(argv, cwd, environment, stdin, stdout, stderr))
        else:
            pid = self._rank.start(lambda: spawner.start_in_terminal(argv, cwd, environment, terminal))
        self._on_exit[pid] = on_exit
        self.alone = False
        return pid

    def fork(self, work: Callable[[], tuple[bool, str]], cwd: str, stdout: int, on_exit: Callable[[int], None]) -> int:
        """Do `work` in a forked child whose standard output gets the text; exit code 1 when the work says False.

        For work in Python that may take long: it can be killed, and the runner goes on meanwhile (a fork costs 2.5 ms).
        """
        pid = self._rank.start(os.fork)
        if pid == 0:
            forked(work, cwd, stdout)
        self._on_exit[pid] = on_exit
        self.alone = False
        return pid

    def reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.alone = True
                return
            if pid == 0:
                self.alone = False
                return
            on_exit = self._on_exit.pop(pid, None)
            if on_exit is not None:
                on_exit(os.waitstatus_to_exitcode(status))
                if self.alone:
                    # The end of its call has reaped too, for its count of leftovers, and found nobody.
                    return

    def processes(self) -> list[Process]:
        """Every living descendant of ours."""
        if self.alone:
            return []
        table = {}
        for name in os.listdir("/proc"):
            if name.isdigit():
                process = read_process(int(name))
                if process is not None:
                    table[process.pid] = process
        return [process for process in table.values() if self._is_ours(process, table)]

    def _is_ours(self, process: Process, table: dict[int, Process]) -> bool:
        if process.pid == self._own_pid:
            return False
        return any(ancestor == self._own_pid for ancestor in ancestors(process, table))

    def leftovers(self, running: set[int], of_call: int | None = None, since_ticks: int = 0) -> int:
        """Processes that belong to no running call (named by its pid); with `of_call`, only those which that call
        started. A process that left its session counts by its age."""
        left = self._left_over(running)
        if of_call is None:
            return len(left)
        return sum(process.session == of_call or process.start_ticks >= since_ticks for process in left)

    def _left_over(self, running: set[int]) -> list[Process]:
        found = self.processes()
        table = {process.pid: process for process in found}
        return [
            process
            for process in found
            if process.session not in running and not any(ancestor in running for ancestor in ancestors(process, table))
        ]

    def make_room(self, running: set[int]) -> int:
        """End whatever belongs to no running call; returns how many processes that were. For a box so full that no
        call can begin any more, not even one that would end some."""
        self.reap()
        # Stopped first, all at one moment: a fork bomb makes new processes faster than they can be ended one by one.
        self._signal_all(SIGSTOP)
        left = self._left_over(running)
        for process in left:
            kill_quietly(process.pid, SIGKILL)
        self._signal_all(SIGCONT)
        return len(left)

    def _signal_all(self, number: int) -> None:
        if self._own_pid == 1:
            kill_quietly(-1, number)
            return
        for process in self.processes():
            kill_quietly(process.pid, number)

    def kill_all(self) -> int:
        """Kill everything but ourselves; returns how many processes there were."""
        self.reap()
        found = self.processes()
        if self._own_pid == 1:
            try:
                os.kill(-1, SIGKILL)
            except ProcessLookupError:
                pass
            return len(found)
        for process in found:
            kill_quietly(process.pid, SIGKILL)
        return len(found)


def forked(work: Callable[[], tuple[bool, str]], cwd: str, stdout: int) -> None:
    """The child's side of `fork`; never returns."""
    code = 2
    try:
        os.setsid()
        os.dup2(stdout, 1)
        # Above all the lock, the listener and the daemon's connections must not live on in here.
        os.closerange(3, os.sysconf("SC_OPEN_MAX") if os.sysconf("SC_OPEN_MAX") > 0 else 65536)
        os.chdir(cwd)
        good, text = work()
        write_all(1, text.encode("utf-8", "replace"))
        code = 0 if good else 1
    except BaseException as error:  # noqa: BLE001 - the end of a process of its own; the words reach the caller
        write_all(1, f"{type(error).__name__}: {error}".encode("utf-8", "replace"))
    finally:
        sys.stderr = None
        os._exit(code)


def write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def ancestors(process: Process, table: dict[int, Process]) -> list[int]:
    chain = []
    parent = process.parent
    while parent > 0 and parent not in chain:
        chain.append(parent)
        above = table.get(parent)
        if above is None:
            break
        parent = above.parent
    return chain


def read_process(pid: int) -> Process | None:
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        data = os.read(fd, 4096)
    except OSError:
        return None
    finally:
        os.close(fd)
    # The name stands in brackets and may itself hold brackets and spaces.
    fields = data.rpartition(b")")[2].split()
    if not fields or fields[0] in (b"Z", b"X"):
        return None
    return Process(pid, int(fields[1]), int(fields[3]), int(fields[19]))


def now_ticks() -> int:
    """The present in the unit of a process's start time."""
    return int(clock_gettime(CLOCK_BOOTTIME) * TICKS_PER_S)


def kill_quietly(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def signal_group(group: int, number: int) -> bool:
    """Whether the group still had a member."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
