"""Two gits that stay: one answers what objects hold, one moves refs. Starting git costs more than their work."""

import os
import select
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lodger_daemon.memory.errors import GitFailed, RefMoved
from lodger_daemon.memory.git import Git

_ANSWER_LIMIT_S: Final = 30.0
_OBJECT_LIMIT_BYTES: Final = 16 * 1024 * 1024
"""More than any object the validator lets in; a tree of 10,000 names has some 600 KB."""
NOTHING: Final = "0" * 40


class _Pipes:
    """Asking a kept git and reading its answer, with a limit."""

    def __init__(self, git: Git, argv: Sequence[str], limit_s: float) -> None:
        self._git = git
        self._argv = argv
        self._limit_s = limit_s
        self._process: subprocess.Popen[bytes] | None = None
        self._left = b""

    def say(self, data: bytes) -> None:
        if self._process is None:
            self._process = self._git.start(*self._argv)
            self._left = b""
        assert self._process.stdin is not None
        os.write(self._process.stdin.fileno(), data)

    def line(self) -> bytes:
        while b"\n" not in self._left:
            self._left += self._more()
        line, _, self._left = self._left.partition(b"\n")
        return line

    def exactly(self, size: int) -> bytes:
        pieces, have = [self._left], len(self._left)
        while have < size:
            piece = self._more()
            pieces.append(piece)
            have += len(piece)
        data = b"".join(pieces)
        self._left = data[size:]
        return data[:size]

    def close(self) -> None:
        if self._process is not None:
            self._git.forget(self._process)
            self._process = None

    def _more(self) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        poll = select.poll()
        poll.register(fd, select.POLLIN | select.POLLHUP)
        if not poll.poll(self._limit_s * 1000):
            raise GitFailed(self._argv[0], None, "no answer")
        piece = os.read(fd, 1 << 16)
        if not piece:
            raise GitFailed(self._argv[0], self._process.poll(), "it ended")
        return piece


class ObjectReader:
    """Objects of one repository, by id."""

    def __init__(self, git: Git, limit_s: float = _ANSWER_LIMIT_S) -> None:
        self._pipes = _Pipes(git, ("cat-file", "--batch-command"), limit_s)

    def read(self, oid: str) -> tuple[str, bytes]:
        """Kind and content. Raises: KeyError when there is none; GitFailed."""
        kind, size = self._ask("contents", oid)
        if size > _OBJECT_LIMIT_BYTES:
            self.close()
            raise KeyError(oid)
        try:
            return kind, self._pipes.exactly(size + 1)[:-1]
        except (GitFailed, OSError):
            self._pipes.close()
            raise

    def size(self, oid: str) -> int:
        """Raises: KeyError when there is no such object; GitFailed."""
        return self._ask("info", oid)[1]

    def close(self) -> None:
        self._pipes.close()

    def _ask(self, question: str, oid: str) -> tuple[str, int]:
        if len(oid) != 40 or not oid.isalnum():
            raise KeyError(oid)
        try:
            words = self._answer(question, oid)
        except GitFailed:
            # A kept git may have died since; one fresh start decides whether something is really wrong.
            words = self._answer(question, oid)
        if len(words) != 3:
            raise KeyError(oid)
        return words[1].decode(), int(words[2])

    def _answer(self, question: str, oid: str) -> list[bytes]:
        try:
            self._pipes.say(f"{question} {oid}\n".encode())
            return self._pipes.line().split()
        except (GitFailed, OSError) as error:
            # An answer that comes after all would be taken for that to the next question.
            self._pipes.close()
            raise error if isinstance(error, GitFailed) else GitFailed("cat-file", None, str(error)) from error


@dataclass(frozen=True, slots=True)
class RefChange:
    """One ref from `old` (None: it must not exist) to `new` (None: removed)."""

    ref: str
    new: str | None
    old: str | None


def commands_for(changes: Sequence[RefChange]) -> bytes:
    """What `git update-ref --stdin -z` reads."""
    return "".join(
        f"update {change.ref}\0{change.new or NOTHING}\0{change.old or NOTHING}\0" for change in changes
    ).encode()


class RefWriter:
    """Moves refs of one repository, all or none, comparing the old values."""

    def __init__(self, git: Git) -> None:
        self._pipes = _Pipes(git, ("update-ref", "--stdin", "-z"), _ANSWER_LIMIT_S)

    def change(self, changes: Sequence[RefChange]) -> None:
        """Raises: RefMoved when a ref was not at its old value: then none has changed. GitFailed."""
        try:
            self._transaction(changes)
        except OSError:
            # The kept git died between two transactions; nothing of this one was read.
            self._pipes.close()
            self._transaction(changes)

    def close(self) -> None:
        self._pipes.close()

    def _transaction(self, changes: Sequence[RefChange]) -> None:
        self._pipes.say(b"start\0")
        try:
            if self._pipes.line() != b"start: ok":
                raise OSError("update-ref did not start")
        except GitFailed as error:
            raise OSError(str(error)) from error
        try:
            self._pipes.say(commands_for(changes) + b"prepare\0")
            self._pipes.line()
        except (GitFailed, OSError) as error:
            self._pipes.close()
            names = ", ".join(change.ref for change in changes)
            raise RefMoved(f"{names} moved meanwhile") from error
        try:
            self._pipes.say(b"commit\0")
            confirmed = self._pipes.line() == b"commit: ok"
        except (GitFailed, OSError):
            confirmed = False
        if not confirmed:
            self._pipes.close()
            raise GitFailed("update-ref", None, "the commit of refs was not confirmed")
