"""The output of a running command so far, cut to a size that can be sent again and again. Pure."""

from typing import Final

from lodger_tools.output.core.truncation import BASH_LIMIT_CHARS, MARK_CHARS

HALF_CHARS: Final = (BASH_LIMIT_CHARS - MARK_CHARS) // 2


class Snapshot:
    """Keeps the first and the last of a growing text."""

    __slots__ = ("_head", "_left_out", "_tail")

    def __init__(self) -> None:
        self._head = ""
        self._tail = ""
        self._left_out = 0

    def add(self, text: str) -> None:
        room = HALF_CHARS - len(self._head)
        self._head += text[:room]
        self._tail += text[room:]
        if len(self._tail) > HALF_CHARS:
            self._left_out += len(self._tail) - HALF_CHARS
            self._tail = self._tail[-HALF_CHARS:]

    def text(self) -> str:
        if not self._left_out:
            return self._head + self._tail
        return f"{self._head}\n[{self._left_out} characters are left out here]\n{self._tail}"
