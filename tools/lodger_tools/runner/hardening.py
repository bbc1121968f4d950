"""The runner's first acts: shut out whatever a tool could use against it (SANDBOX-NOTES.md section 1)."""

# pathlib would cost the runner 8 ms of its start.
# ruff: noqa: PTH208
from __future__ import annotations

import os

from lodger_tools.runner.memory_rank import open_own_rank

PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
TOKEN_LIMIT_BYTES = 4096


def harden(kept: tuple[int, ...]) -> int:
    """Close every descriptor but `kept` and the standard three, make this process non-dumpable, hand nothing on.

    Returns a descriptor of its rank when memory runs out.
    """
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd > 2 and fd not in kept:
            # The listing's own descriptor is already closed.
            with_closed(fd)
    for fd in kept:
        os.set_inheritable(fd, False)
    fill_standard_descriptors()
    rank_fd = open_own_rank()
    import ctypes

    prctl = ctypes.CDLL(None).prctl
    if prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise SystemExit("the runner cannot be made non-dumpable; it does not start")
    if os.getpid() != 1:
        # Only in tests of the runner alone: as PID 1 it gets every orphan anyway.
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    os.umask(0o022)
    return rank_fd


def with_closed(fd: int) -> None:
    try:
        os.close(fd)
    except OSError:
        return


def fill_standard_descriptors() -> None:
    """A pipe that got number 0, 1 or 2 would be confused with a child's own."""
    fd = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    while fd <= 2:
        fd = os.dup(fd)
    os.dup2(fd, 0)
    os.close(fd)


def take_token(fd: int) -> bytes:
    """Read the token to the end of its pipe and close it."""
    token = b""
    while len(token) <= TOKEN_LIMIT_BYTES:
        data = os.read(fd, TOKEN_LIMIT_BYTES)
        if not data:
            break
        token += data
    os.close(fd)
    if len(token) < 16:
        raise SystemExit("the runner got no token; it does not start")
    return token
