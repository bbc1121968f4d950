"""Standard input line by line, on the event loop.

Not read in a thread: one that waits for the terminal cannot be ended, so Ctrl-C would wait for the next Enter.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Final

from lodger_cli.terminal import note

LINE_LIMIT_BYTES: Final = 16 * 1024 * 1024
_PIECE_BYTES: Final = 64 * 1024


class Lines:
    """Lines of one descriptor. Ask one `Lines` only: what it has read beyond a line is kept for the next."""

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor
        self._kept = bytearray()
        self._ended = False

    async def next(self) -> str:
        """The next line with its end; empty at the end of input. A line beyond the limit comes in parts."""
        while b"\n" not in self._kept and not self._ended and len(self._kept) < LINE_LIMIT_BYTES:
            piece = await self._piece()
            self._kept += piece
            self._ended = not piece
        end = self._kept.find(b"\n") + 1 or len(self._kept)
        line = bytes(self._kept[:end])
        del self._kept[:end]
        return line.decode("utf-8", "replace")

    async def _piece(self) -> bytes:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        try:
            loop.add_reader(self._descriptor, _settle, ready)
        except OSError:
            return self._read()  # a file: it never makes anybody wait, and cannot be waited for
        try:
            await ready
        finally:
            loop.remove_reader(self._descriptor)
        return self._read()

    def _read(self) -> bytes:
        try:
            return os.read(self._descriptor, _PIECE_BYTES)
        except OSError:
            return b""  # closed, or the terminal is gone


def prompting(lines: Lines) -> Callable[[str], Awaitable[str]]:
    """Reads a line after a prompt on standard error; empty at the end of input."""

    async def read(prompt: str) -> str:
        sys.stderr.write(prompt)
        sys.stderr.flush()
        line = await lines.next()
        if not line:
            note("")
        return line

    return read


def _settle(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
