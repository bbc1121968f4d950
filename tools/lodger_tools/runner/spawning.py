"""Making a process of a program, by the quicker of two ways.

`_posixsubprocess` is the C half of the standard library's subprocess module. It resets few signals where posix_spawn
resets all, which is 13 of the 550 us that a small program takes from its start to its end in a box, and after which two
of the C library's own are ignored in the program; and it changes the folder in the child. Where it is missing or has
changed, posix_spawn serves.
"""

from __future__ import annotations

import os
import sys

try:
    from _posixsubprocess import fork_exec as _fork_exec
except ImportError:
    _fork_exec = None  # type: ignore[assignment]  # then posix_spawn serves

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

SIGINT, SIGPIPE, SIGTERM, SIGCHLD, SIGXFSZ = 2, 13, 15, 17, 25
ABSENT = -1
MAY_VFORK: tuple[bool, ...] = (True,) if sys.version_info < (3, 14) else ()
"""A last argument of earlier Pythons; later ones do not ask."""
REPORT_BYTES = 4096


class Spawner:
    """Starts programs in sessions of their own. One thread only."""

    __slots__ = ("_fork_exec", "_home", "_nothing")

    def __init__(self, fork_exec: Any = _fork_exec) -> None:
        self._fork_exec = fork_exec
        self._home = os.open("/", os.O_PATH | os.O_CLOEXEC)
        self._nothing = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        os.close(self._home)
        os.close(self._nothing)

    def start(
        self, argv: list[str], cwd: str, environment: Mapping[str, str], stdin: int | None, stdout: int, stderr: int
    ) -> int:
        """Returns the pid, which is also its group and session. Raises: OSError; nothing runs then."""
        stdin = self._nothing if stdin is None else stdin
        if self._fork_exec is not None:
            words = [os.fsencode(word) for word in argv]
            variables = [os.fsencode(f"{name}={value}") for name, value in environment.items()]
            try:
                return self._start_quickly(words, cwd, variables, (stdin, stdout, stderr))
            except TypeError:
                # Of another shape in this Python. Nothing has been started: arguments are looked at first.
                self._fork_exec = None
        actions = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate((stdin, stdout, stderr))]
        return self._start_anywhere(argv, cwd, environment, actions)

    def start_in_terminal(self, argv: list[str], cwd: str, environment: Mapping[str, str], terminal: str) -> int:
        """The same; the terminal is what the program controls and all that it reads and writes."""
        # The first terminal that the leader of a session opens becomes the one it controls.
        opening = (os.POSIX_SPAWN_OPEN, 0, terminal, os.O_RDWR, 0)
        actions = [opening, (os.POSIX_SPAWN_DUP2, 0, 1), (os.POSIX_SPAWN_DUP2, 0, 2)]
        return self._start_anywhere(argv, cwd, environment, actions)

    def _start_quickly(
        self, argv: list[bytes], cwd: str, variables: list[bytes], standard: tuple[int, int, int]
    ) -> int:
        stdin, stdout, stderr = standard
        report_read, report_write = os.pipe2(os.O_CLOEXEC)
        try:
            pid: int = self._fork_exec(
                argv,
                places_of(argv[0]),
                True,  # close all other descriptors
                (report_write,),  # but this one
                cwd,
                variables,
                stdin,
                ABSENT,  # ours of three pipes, which the child would close
                ABSENT,
                stdout,
                ABSENT,
                stderr,
                report_read,
                report_write,
                True,  # what Python ignores is not ignored there
                True,  # a session of its own
                ABSENT,  # and no group besides
                None,  # user and groups: as ours
                None,
                None,
                ABSENT,  # and the mask for new files
                None,  # nothing of Python is called in the child
                *MAY_VFORK,
            )
        except BaseException:
            os.close(report_read)
            raise
        finally:
            os.close(report_write)
        # Ends with the child's exec, which has happened already where the kernel has vfork.
        report = b""
        while part := os.read(report_read, REPORT_BYTES):
            report += part
        os.close(report_read)
        if report:
            os.waitpid(pid, 0)
            raise failure_in(report, cwd, argv[0])
        return pid

    def _start_anywhere(self, argv: list[str], cwd: str, environment: Mapping[str, str], actions: list[Any]) -> int:
        # posix_spawn has no chdir; with one thread, going there and back is safe.
        os.chdir(cwd)
        try:
            return os.posix_spawnp(
                argv[0],
                argv,
                environment,
                file_actions=actions,
                setsid=True,
                setsigmask=(),
                setsigdef=(SIGINT, SIGPIPE, SIGTERM, SIGCHLD, SIGXFSZ),
            )
        finally:
            os.fchdir(self._home)


def places_of(program: bytes) -> tuple[bytes, ...]:
    """Where it may lie, in the order of the runner's own search path."""
    if b"/" in program:
        return (program,)
    return tuple(os.fsencode(folder) + b"/" + program for folder in os.get_exec_path())


def failure_in(report: bytes, cwd: str, program: bytes) -> OSError:
    """What the child wrote when it could not become the program: `OSError:NUMBER:WHERE`, the number in hexadecimal;
    WHERE is empty for the program, `noexec` or, in later Pythons, `noexec:chdir` for the folder."""
    kind, _, rest = report.partition(b":")
    number, _, where = rest.partition(b":")
    if kind != b"OSError":
        return OSError(report.decode("utf-8", "replace"))
    code = int(number, 16)
    return OSError(code, os.strerror(code), cwd if where.startswith(b"noexec") else os.fsdecode(program))
