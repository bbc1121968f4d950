"""A `lodger` command in a pseudo-terminal of its own, as a person has it."""

import os
import pty
import re
import select
import signal
import sys
import termios
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from support.patience import LIMIT_S

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|\x1b[=>]|\r")


class Terminal:
    """`TERM=dumb` unless said otherwise: then nothing but text is written."""

    def __init__(self, home: Path, *arguments: str, **environment: str) -> None:
        complete = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "LODGER_HOME": str(home / "lodger"),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "PROMPT_TOOLKIT_NO_CPR": "1",
            **environment,
        }
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            # As a shell does for what it starts in the foreground; the tests may run where it is ignored.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.execve(sys.executable, [sys.executable, "-m", "lodger_cli.main", *arguments], complete)
        self.raw = ""
        self._read_to = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def seen(self) -> str:
        """What came so far, without what only moves the cursor or paints."""
        return _ESCAPES.sub("", self.raw)

    def expect(self, text: str) -> str:
        """What came up to and with `text`, since the last one expected."""
        deadline = time.monotonic() + LIMIT_S
        while (found := self.seen.find(text, self._read_to)) < 0:
            assert time.monotonic() < deadline and self._pump(), f"{text!r} not in {self.seen!r}"
        start, self._read_to = self._read_to, found + len(text)
        return self.seen[start : self._read_to]

    def press_until(self, key: str, text: str) -> None:
        """Press a key again until `text` has come: what it shows may still be being loaded."""
        deadline = time.monotonic() + LIMIT_S
        while (found := self.seen.find(text, self._read_to)) < 0:
            assert time.monotonic() < deadline, f"{text!r} not in {self.seen!r}"
            self.send(key)
            assert self._pump()
        self._read_to = found + len(text)

    def send(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def until_keys_wait(self) -> None:
        """Until nobody reads what is typed: a prompt takes Ctrl-C as a key, the terminal makes a signal of it."""
        deadline = time.monotonic() + LIMIT_S
        while not termios.tcgetattr(self._fd)[3] & termios.ISIG:
            assert time.monotonic() < deadline and self._pump(), f"still at a prompt: {self.seen!r}"

    def end(self) -> int:
        """Read to the end; the exit code."""
        deadline = time.monotonic() + LIMIT_S
        while self._pump():
            assert time.monotonic() < deadline, f"still running: {self.seen!r}"
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        os.close(self._fd)
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)

    def _pump(self) -> bool:
        if not select.select([self._fd], [], [], 0.5)[0]:
            return True
        try:
            piece = os.read(self._fd, 65536)
        except OSError:
            return False
        self.raw += piece.decode("utf-8", "replace")
        return bool(piece)
