"""A bounded queue of text frames in front of one socket."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable


class PeerStuck(Exception):
    """A socket did not take a frame within the limit."""


class Outgoing:
    """Frames on their way to one peer, in order. One task runs `drain`; any task may add."""

    def __init__(self, limit_frames: int, limit_bytes: int) -> None:
        self._limit_frames = limit_frames
        self._limit_bytes = limit_bytes
        self._frames: deque[str] = deque()
        self._size = 0
        self._filled = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    def offer(self, frame: str) -> bool:
        """Add without waiting; false, and nothing added, when the queue is full. One frame always fits an empty one."""
        if self._full(len(frame)):
            return False
        self.force(frame)
        return True

    def force(self, frame: str) -> None:
        """Add beyond the limit: for the hub's own small frames, of which there are few."""
        self._frames.append(frame)
        self._size += len(frame)
        self._filled.set()

    async def put(self, frame: str) -> None:
        """Add, waiting for room: the way back pressure reaches whoever sends."""
        while self._full(len(frame)):
            self._room.clear()
            await self._room.wait()
        self.force(frame)

    async def drain(self, send: Callable[[str], Awaitable[None]], limit_s: float) -> None:
        """Send for ever. Raises: PeerStuck."""
        while True:
            if not self._frames:
                self._filled.clear()
                await self._filled.wait()
            frame = self._frames.popleft()
            try:
                async with asyncio.timeout(limit_s):
                    await send(frame)
            except TimeoutError as error:
                raise PeerStuck from error
            self._size -= len(frame)
            self._room.set()

    def _full(self, more: int) -> bool:
        if not self._frames and self._size == 0:
            return False
        return len(self._frames) >= self._limit_frames or self._size + more > self._limit_bytes
