"""What is asked of the sandbox: one detached box with a runner in it.

The caller (`lodger_tools.box`) makes the listening socket, the lock and the token; the sandbox starts the box around
them and lets go of it. Everything here is plain data.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class BoxUser:
    """As whom the box runs: the daemon's own user, or the dedicated user when the daemon is root."""

    uid: int
    gid: int
    name: str


@dataclass(frozen=True, slots=True)
class Mount:
    """A host folder or file seen inside. Opened without following links by the daemon's own user, before the box's
    user takes over, so that a folder below a home of mode 0700 can be shown."""

    source: str
    target: str
    writable: bool = False


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A small text of the daemon's, read-only inside, that lies nowhere on the machine."""

    target: str
    """Below /run/lodger."""
    text: str


@dataclass(frozen=True, slots=True)
class BoxLimits:
    """Of each process; memory, processes and CPU also of the box as a whole where control groups are to be had
    (SANDBOX-NOTES.md section 5)."""

    memory_bytes: int = 4 * 1024**3
    processes: int = 512
    file_size_bytes: int = 8 * 1024**3
    tmp_bytes: int = 1024**3
    home_bytes: int = 1024**3
    nice: int = 5
    """Of everything in the box: the daemon and what a person does by hand come first. At 5 the kernel gives a process a
    third of what one at 0 gets beside it (sched(7): a factor of 1.25 a step)."""
    processors: float = 0.0
    """The box keeps no more of them busy, where there are control groups; 0: no limit."""


@dataclass(frozen=True, slots=True)
class BoxRequest:
    """One box to start."""

    workspace: str
    """Absolute; writable inside at the same path (read-only in the profile `read_only`)."""
    profile: Literal["agent", "strict", "memory_worker", "person", "guard", "read_only"]
    user: BoxUser
    home: str
    """The person's home: a private empty folder inside, with an allow-list of toolchains and dotfiles."""
    mounts: tuple[Mount, ...] = ()
    written: tuple[WrittenFile, ...] = ()
    masks: tuple[str, ...] = ()
    """Folders and files that must not be seen at all: the daemon's state and configuration, other agents' memory."""
    installation: tuple[str, ...] = ()
    """Where the program that starts boxes lies, free of links: no workspace that can be written may be there, hold it
    or lie in it."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """All of it: the box starts with an empty environment."""
    limits: BoxLimits = field(default_factory=BoxLimits)


@dataclass(frozen=True, slots=True)
class RunnerStart:
    """What PID 1 of the box is, and the descriptors it inherits. None of them has a path inside."""

    program_folder: str
    """Bound read-only; its `main.py` is run by the interpreter with `-I -S -B`."""
    listener_fd: int
    token_fd: int
    """The read end of a pipe that holds the token."""
    lock_fd: int
    """Locked; whoever can lock it again knows that the box has ended."""
    extra_folders: tuple[tuple[str, str], ...] = ()
    """(host folder, name below /run/lodger) pairs to bind read-only, such as the memory validator."""


@dataclass(frozen=True, slots=True)
class DetachedBox:
    """A running box. It survives the process that started it and ends with its outer bwrap."""

    outer_pid: int
    runner_pid: int
    """PID 1 of the box, as the host numbers it."""
    runner_start_ticks: int
    """Field 22 of /proc/PID/stat: with the pid it names the process for ever."""
    group: str = ""
    """The control group that it is in, which has to be ended with it; empty when it has none of its own."""


class SandboxUnavailable(Exception):
    """No box can be started here. The text says why and what would mend it. Fail closed: nothing may run instead."""


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """What a start-up probe found out about this machine's sandbox."""

    holds: bool
    backend: Literal["bwrap", "seatbelt", "none"]
    version: str
    failures: tuple[str, ...] = ()
    """What did not hold, in words for `lodger doctor`."""
    advice: str = ""
    limits: str = ""
    """What limits a box as a whole here, in words."""
