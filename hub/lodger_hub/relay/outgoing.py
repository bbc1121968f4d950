"""A bounded queue of text frames in front of one socket."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable


class PeerStuck(Exception):
    """A socket did not take a frame within the limit."""


def size_of(frame: str) -> int:
    """Bytes of a frame on the wire."""
    # Most frames are ASCII, and Python knows that of a string without looking at it.
    return len(frame) if frame.isascii() else len(frame.encode())


class Outgoing:
    """Frames on their way to one peer, in order. One task runs `drain`; any task may add."""

    def __init__(self, limit_frames: int, limit_bytes: int) -> None:
        self._limit_frames = limit_frames
        self._limit_bytes = limit_bytes
        self._frames: deque[tuple[str, int, str]] = deque()
        self._size = 0
        self._filled = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    def offer(self, frame: str) -> bool:
        """Add without waiting; false, and nothing added, when the queue is full. One frame always fits an empty one."""
        size = size_of(frame)
        if self._full(size):
            return False
        self._add(frame, size)
        return True

    def force(self, frame: str) -> None:
        """Add beyond the limit: for the hub's own small frames, of which there are few."""
        self._add(frame, size_of(frame))

    async def put(self, frame: str, origin: str, wanted: Callable[[], bool]) -> None:
        """Add, waiting for room: the way back pressure reaches whoever sends. Nothing is added for a sender that is no
        longer wanted when there is room."""
        size = size_of(frame)
        while self._full(size):
            self._room.clear()
            await self._room.wait()
        if wanted():
            self._add(frame, size, origin)

    def drop(self, origin: str) -> None:
        """Forget what came from there and has not gone out yet."""
        kept = [frame for frame in self._frames if frame[2] != origin]
        self._size -= sum(size for _, size, whose in self._frames if whose == origin)
        self._frames = deque(kept)
        self._room.set()

    async def drain(self, send: Callable[[str], Awaitable[None]], limit_s: float) -> None:
        """Send for ever. Raises: PeerStuck."""
        while True:
            if not self._frames:
                self._filled.clear()
                await self._filled.wait()
            frame, size, _ = self._frames.popleft()
            try:
                async with asyncio.timeout(limit_s):
                    await send(frame)
            except TimeoutError as error:
                raise PeerStuck from error
            self._size -= size
            self._room.set()

    def _add(self, frame: str, size: int, origin: str = "") -> None:
        self._frames.append((frame, size, origin))
        self._size += size
        self._filled.set()

    def _full(self, more: int) -> bool:
        if not self._frames and self._size == 0:
            return False
        return len(self._frames) >= self._limit_frames or self._size + more > self._limit_bytes
