"""What is written to a running command's standard input: as fast as it reads, with a limit to what waits."""

from __future__ import annotations

import os

from lodger_tools.runner.poll import WRITABLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from lodger_tools.runner.poll import Poll

WAITING_LIMIT_BYTES = 1024 * 1024


class SessionInput:
    """Owns a descriptor of its own, also where a terminal is read by another."""

    __slots__ = ("_closed", "_fd", "_poll", "_waiting", "_watching")

    def __init__(self, poll: Poll, fd: int) -> None:
        os.set_blocking(fd, False)
        self._poll = poll
        self._fd = fd
        self._waiting = bytearray()
        self._watching = False
        self._closed = False

    def write(self, data: bytes) -> bool:
        """False when nobody reads any more, or when too much waits already: then nothing of it was taken."""
        if self._closed or len(self._waiting) + len(data) > WAITING_LIMIT_BYTES:
            return False
        self._waiting += data
        self._flush()
        return not self._closed

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._watching:
            self._poll.forget(self._fd)
        os.close(self._fd)

    def _flush(self) -> None:
        try:
            while self._waiting:
                del self._waiting[: os.write(self._fd, self._waiting)]
        except BlockingIOError:
            pass
        except OSError:
            self.close()
            return
        wanted = bool(self._waiting)
        if wanted and not self._watching:
            self._poll.watch(self._fd, WRITABLE, lambda mask: self._flush())
        elif self._watching and not wanted:
            self._poll.forget(self._fd)
        self._watching = wanted
