"""Starting git on a repository of ours: trusted place, environment from nothing, a limit, a group of its own."""

import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from lodger_daemon.memory.core.commits import Identity
from lodger_daemon.memory.errors import GitFailed, MemoryUnavailable

_GIT_PLACES: Final = ("/usr/bin/git", "/usr/local/bin/git", "/opt/homebrew/bin/git")
MEMORY_LIMIT_BYTES: Final = 1024**3
"""Of a git that takes in what others packed: 16 KB of deltas can make an object of many gigabytes, held whole."""
COMMAND_LIMIT_S: Final = 60.0
"""As the reference (BEHAVIOUR.md F4)."""
LONGEST_S: Final = 900.0
"""Of one that carries a large memory over a slow line: 200 MB at 2 Mbit/s."""
_END_LIMIT_S: Final = 5.0
"""Of a git that has nothing more to say."""


def find_git() -> str:
    """Raises: MemoryUnavailable when no trusted place has git."""
    for place in _GIT_PLACES:
        if os.access(place, os.X_OK):
            return place
    raise MemoryUnavailable(f"git is in none of {', '.join(_GIT_PLACES)}. Install git.")


@dataclass(frozen=True, slots=True)
class Done:
    """How a git ended; `exit_code` is None when it was killed for taking too long."""

    exit_code: int | None
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        return (self.stdout + self.stderr).decode("utf-8", "replace")


class RunningGits:
    """The processes that may have to be ended from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._closed = False

    def add(self, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._running.add(process)
            if self._closed:
                kill_group(process)

    def discard(self, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._running.discard(process)

    def kill_all(self) -> None:
        """End all, and from now on every new one at once."""
        with self._lock:
            self._closed = True
            for process in self._running:
                kill_group(process)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _whole(command: str, process: subprocess.Popen[bytes], pieces: list[bytes]) -> bytes:
    """What a git that has closed its output has said, if it ended well. Raises: GitFailed."""
    try:
        exit_code = process.wait(_END_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise GitFailed(command, None, "it does not end") from None
    if exit_code != 0:
        raise GitFailed(command, exit_code, "")
    return b"".join(pieces)


def _communicated(
    process: subprocess.Popen[bytes], stdin: bytes, limit_s: float, moves: Callable[[], bool] | None
) -> tuple[bytes, bytes]:
    """Raises: subprocess.TimeoutExpired."""
    last = time.monotonic() + LONGEST_S - limit_s
    given: bytes | None = stdin
    while True:
        try:
            return process.communicate(given, timeout=limit_s)
        except subprocess.TimeoutExpired:
            if moves is None or time.monotonic() > last or not moves():
                raise
            given = None


class Git:
    """Git on one bare repository. All methods block: call them on a worker thread."""

    def __init__(self, repository: Path, identity: Identity, running: RunningGits) -> None:
        self.repository = repository
        self._running = running
        self._program = find_git()
        self._environment = {
            "PATH": "/usr/bin:/bin:/usr/local/bin:/opt/homebrew/bin",
            "HOME": "/nonexistent",
            "LC_ALL": "C",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "/bin/false",
            "GIT_EDITOR": "false",
            "GIT_SEQUENCE_EDITOR": "false",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            # A path is data: no name of a file becomes a pattern.
            "GIT_LITERAL_PATHSPECS": "1",
            "GIT_AUTHOR_NAME": identity.name,
            "GIT_AUTHOR_EMAIL": identity.email,
            "GIT_COMMITTER_NAME": identity.name,
            "GIT_COMMITTER_EMAIL": identity.email,
        }

    def start(self, *argv: str) -> subprocess.Popen[bytes]:
        """A git that stays, for questions over its pipes."""
        process = subprocess.Popen(
            self._argv(argv),
            env=self._environment,
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
        )
        self._running.add(process)
        return process

    def forget(self, process: subprocess.Popen[bytes]) -> None:
        """End a git that `start` gave, and reap it."""
        kill_group(process)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    pass
        process.wait()
        self._running.discard(process)

    def attempt(
        self,
        *argv: str,
        stdin: bytes = b"",
        limit_s: float = COMMAND_LIMIT_S,
        environment: Mapping[str, str] | None = None,
        max_file_bytes: int | None = None,
        moves: Callable[[], bool] | None = None,
        into: BinaryIO | None = None,
    ) -> Done:
        """Run to the end and say how it went.

        Args:
            environment: added to our own, for credentials.
            moves: asked each time the limit is reached: while it says so, git is waited for as long again, at most
                `LONGEST_S` in all.
            into: takes its output, which is then not in the result.
            max_file_bytes: a limit on every file that git and its children write; their memory is limited then too.
        """
        command = self._argv(argv)
        if max_file_bytes is not None:
            # Where the system has no such limit on memory, the shell says so and goes on.
            limits = f"ulimit -v {MEMORY_LIMIT_BYTES // 1024} 2>/dev/null; ulimit -f {max_file_bytes // 512}"
            command = ["/bin/sh", "-c", f'{limits}; exec "$@"', "sh", *command]
        process = subprocess.Popen(
            command,
            env=self._environment | dict(environment or {}),
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if into is None else into,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._running.add(process)
        try:
            stdout, stderr = _communicated(process, stdin, limit_s, moves)
            return Done(process.returncode, stdout or b"", stderr)
        except subprocess.TimeoutExpired:
            kill_group(process)
            stdout, stderr = process.communicate()
            return Done(None, stdout or b"", stderr)
        finally:
            self._running.discard(process)

    def run(self, *argv: str, stdin: bytes = b"", environment: Mapping[str, str] | None = None) -> bytes:
        """Its output. Raises: GitFailed."""
        done = self.attempt(*argv, stdin=stdin, environment=environment)
        if done.exit_code != 0:
            raise GitFailed(argv[0], done.exit_code, done.stderr.decode("utf-8", "replace"))
        return done.stdout

    def run_within(self, most_bytes: int, *argv: str, stdin: bytes = b"") -> bytes | None:
        """Its output, or None when there is more of it than that, which is then not waited for.

        Args:
            stdin: at most what a pipe holds.

        Raises: GitFailed.
        """
        process = self.start(*argv)
        deadline = time.monotonic() + COMMAND_LIMIT_S
        pieces: list[bytes] = []
        size = 0
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            os.write(process.stdin.fileno(), stdin)
            process.stdin.close()
            while size <= most_bytes:
                left_s = deadline - time.monotonic()
                if left_s <= 0 or not select.select([process.stdout], [], [], left_s)[0]:
                    raise GitFailed(argv[0], None, "")
                piece = os.read(process.stdout.fileno(), 1 << 18)
                if not piece:
                    return _whole(argv[0], process, pieces)
                pieces.append(piece)
                size += len(piece)
            return None
        finally:
            self.forget(process)

    def line(self, *argv: str, stdin: bytes = b"") -> str:
        """Its output as one trimmed text. Raises: GitFailed."""
        return self.run(*argv, stdin=stdin).decode("utf-8", "replace").strip()

    def _argv(self, argv: tuple[str, ...]) -> list[str]:
        # One thread and small windows, so that the limit on memory is met by a bomb only.
        fixed = ["-c", "pack.threads=1", "-c", "core.packedGitLimit=256m", "-c", "core.packedGitWindowSize=32m"]
        fixed += ["-c", "maintenance.auto=false", "-c", "gc.auto=0", "-c", "core.hooksPath=/dev/null"]
        return [self._program, f"--git-dir={self.repository}", *fixed, *argv]
