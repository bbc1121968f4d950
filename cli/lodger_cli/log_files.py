"""Reading a log file of ours: its last lines, through rotation, and what is added to it from then on."""

import os
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import Final

LONGEST_LINE_BYTES: Final = 64 * 1024
"""Of a line that is still being written; more is shown in parts."""
ROTATED: Final = 9
"""How many earlier files are looked for; the log keeps fewer."""


class LogFile:
    """Blocking. Every whole line is told once, by `last` or by `news`, also across a rotation in between."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rest = b""
        self._open: BufferedReader | None = None
        self._reopen()

    def last(self, count: int) -> list[str]:
        """So many lines at the most, oldest first; of earlier files where this one has too few. Call it first."""
        lines = list(self._read())
        for number in range(1, ROTATED + 1):
            if len(lines) >= count:
                break
            try:
                earlier = self.path.with_name(f"{self.path.name}.{number}").read_text("utf-8", "replace")
            except OSError:
                break
            lines = [*earlier.splitlines(), *lines]
        return lines[max(0, len(lines) - count) :]

    def news(self) -> Iterator[str]:
        """What was added since; at once."""
        yield from self._read()
        if self._was_replaced():
            # What was written between the last read and the rotation.
            yield from self._read()
            self._reopen()
            yield from self._read()

    def close(self) -> None:
        if self._open is not None:
            self._open.close()

    def _read(self) -> Iterator[str]:
        if self._open is None:
            return
        *lines, self._rest = (self._rest + self._open.read()).split(b"\n")
        if len(self._rest) > LONGEST_LINE_BYTES:
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            yield line.decode("utf-8", "replace")

    def _was_replaced(self) -> bool:
        try:
            there = self.path.stat()
        except OSError:
            return False
        if self._open is None:
            return True
        own = os.fstat(self._open.fileno())
        return (there.st_dev, there.st_ino) != (own.st_dev, own.st_ino)

    def _reopen(self) -> None:
        self.close()
        self._rest = b""
        try:
            self._open = self.path.open("rb")
        except OSError:
            self._open = None
