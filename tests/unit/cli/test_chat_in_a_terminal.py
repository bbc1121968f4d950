"""`lodger chat` and `lodger ask` in a real pseudo-terminal, with a daemon of their own."""

import os
import pty
import select
import signal
import sys
import time
from pathlib import Path

import pytest

LIMIT_S = 30.0


class Terminal:
    """A `lodger` command in a terminal of its own."""

    def __init__(self, home: Path, *arguments: str) -> None:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "LODGER_HOME": str(home / "lodger"),
            "TERM": "dumb",
        }
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            # As a shell does for what it starts in the foreground; the tests may run where it is ignored.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.execve(sys.executable, [sys.executable, "-m", "lodger_cli.main", *arguments], environment)
        self.seen = ""
        self._read_to = 0

    def expect(self, text: str) -> str:
        """What came up to and with `text`, since the last one expected."""
        deadline = time.monotonic() + LIMIT_S
        while (found := self.seen.find(text, self._read_to)) < 0:
            assert time.monotonic() < deadline and self._pump(), f"{text!r} not in {self.seen!r}"
        start, self._read_to = self._read_to, found + len(text)
        return self.seen[start : self._read_to]

    def send(self, text: str) -> None:
        os.write(self._fd, text.encode())

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
        self.seen += piece.decode("utf-8", "replace").replace("\r\n", "\n")
        return bool(piece)


@pytest.mark.parametrize("when", ["at the prompt", "at a question"])
def test_ctrl_c_ends_the_chat_at_once(tmp_path: Path, when: str) -> None:
    chat = Terminal(tmp_path, "chat", "--mode", "strict")
    try:
        opening = chat.expect("> ")
        assert "Talking to Lodger, with the model practice/practice." in opening
        if when == "at a question":
            chat.send("write notes.md with hello\r")
            chat.expect("Allow it?")
        chat.send("\x03")
        assert chat.end() == 130
    finally:
        chat.close()


def test_a_person_says_no_and_leaves(tmp_path: Path) -> None:
    chat = Terminal(tmp_path, "chat", "--mode", "strict")
    try:
        chat.expect("> ")
        chat.send("write notes.md with hello\r")
        chat.expect("Allow it?")
        chat.send("what?\r")
        chat.expect("Allow it?")
        chat.send("n\r")
        assert "said no" in chat.expect("> ")
        chat.send("\x04")
        assert chat.end() == 0
        assert chat.seen.endswith("> \n"), "the shell's prompt starts on a line of its own"
    finally:
        chat.close()
    assert not (tmp_path / "lodger" / "workspace" / "notes.md").exists()
