"""What a server and everything it started cost: resident memory and CPU time, read from /proc (Linux only).

A box outlives the daemon that started it and has no parent there, so a walk from the server's process would miss it.
This process therefore adopts orphans (PR_SET_CHILD_SUBREAPER): whatever a server leaves behind becomes a child here,
and the tree of a server is every descendant of this process but the ones named as ours.
"""

import contextlib
import ctypes
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PR_SET_CHILD_SUBREAPER: Final = 36
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
KIB_PER_MIB: Final = 1024
END_LIMIT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class ProcessMemory:
    """One process of the tree. PSS counts shared pages by share; None where the kernel does not tell it."""

    name: str
    rss_mib: float
    pss_mib: float | None


@dataclass(frozen=True, slots=True)
class TreeMemory:
    """The whole tree at one moment."""

    processes: tuple[ProcessMemory, ...]

    @property
    def rss_mib(self) -> float:
        return sum(process.rss_mib for process in self.processes)

    @property
    def pss_mib(self) -> float | None:
        shares = [process.pss_mib for process in self.processes if process.pss_mib is not None]
        return sum(shares) if len(shares) == len(self.processes) else None

    def __str__(self) -> str:
        return ", ".join(f"{process.name} {process.rss_mib:.1f}" for process in self.processes)


def adopt_orphans() -> None:
    """Make this process the parent of every descendant whose own parent ends. Raises: OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot adopt orphans, so boxes could not be counted")


class ServerTree:
    """Every process below this one, except those that belong to the benchmark itself."""

    def __init__(self, ours: frozenset[int]) -> None:
        self._ours = ours

    def pids(self) -> list[int]:
        children: dict[int, list[int]] = {}
        for pid, fields in _stats():
            children.setdefault(int(fields[1]), []).append(pid)
        found: list[int] = []
        ahead = list(children.get(os.getpid(), []))
        while ahead:
            pid = ahead.pop()
            if pid not in self._ours:
                found.append(pid)
                ahead.extend(children.get(pid, []))
        return sorted(found)

    def memory(self) -> TreeMemory:
        measured = (_memory_of(pid) for pid in self.pids())
        return TreeMemory(tuple(process for process in measured if process is not None))

    def cpu_s(self) -> float:
        """User and system time so far, with ended children that were waited for; in steps of 10 ms."""
        tree = set(self.pids())
        return sum(sum(map(int, fields[11:15])) for pid, fields in _stats() if pid in tree) / TICKS_PER_S

    def running_s(self) -> float:
        """Time on a processor so far, to the nanosecond, of the threads alive now: for the small sums of idling."""
        total_ns = 0
        for pid in self.pids():
            for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
                with contextlib.suppress(OSError):
                    total_ns += int(thread.read_text().split()[0])
        return total_ns / 1e9

    def end(self) -> None:
        """End what a server left behind (boxes outlive it by design), by id, and take the dead off the books."""
        deadline = time.monotonic() + END_LIMIT_S
        while left := self.pids():
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            if time.monotonic() > deadline:
                raise TimeoutError(f"processes {left} of the last server do not end")
            time.sleep(0.005)


def _stats() -> list[tuple[int, list[str]]]:
    """Every process with the fields of its stat line behind the name: state, parent, …"""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                found.append((int(entry.name), (entry / "stat").read_text().rpartition(")")[2].split()))
    return found


def _memory_of(pid: int) -> ProcessMemory | None:
    """None for a process that has ended, or is dead and not yet waited for."""
    try:
        status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    except OSError:
        return None
    if "VmRSS" not in status:
        return None
    pss_mib = None
    with contextlib.suppress(OSError):
        shares = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
        pss_mib = int(shares["Pss"].split()[0]) / KIB_PER_MIB
    return ProcessMemory(_name_of(pid, status["Name"].strip()), int(status["VmRSS"].split()[0]) / KIB_PER_MIB, pss_mib)


def _name_of(pid: int, fallback: str) -> str:
    """The program, and for Python the module or script it runs."""
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        program = Path(words[0]).name or fallback
        if program.startswith(("python", "node")):
            said = [word for word in words[1:] if word and not word.startswith("-")]
            return f"{program} {Path(said[0]).name}" if said else program
        return program
    return fallback
