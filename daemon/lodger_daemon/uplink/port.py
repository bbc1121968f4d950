"""One client as it is reached through the link: its frames in order, without holding up other clients."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from lodger_daemon.uplink.errors import LinkLost
from lodger_daemon.uplink.router import FramePeer, FrameRouter

logger = logging.getLogger(__name__)

WAITING_FRAMES: Final = 256
"""A client this far ahead of the daemon holds up the link, and so the hub holds up that client."""
HOLD_UP_LIMIT_S: Final = 20.0
"""How long it may do so: then it is cut, for the others of the link, whose pongs are not read meanwhile either."""
CLOSE_LIMIT_S: Final = 10.0


class ClientPort:
    """Owns the task that feeds one peer. `aclose` ends both."""

    def __init__(
        self,
        router: FrameRouter,
        label: str,
        wire_name: str | None,
        send: Callable[[bytes], Awaitable[None]],
        on_failure: Callable[[], Awaitable[None]],
        device_id: str = "",
    ) -> None:
        self._label = label
        self._send = send
        self._on_failure = on_failure
        self._frames: asyncio.Queue[bytes] = asyncio.Queue(WAITING_FRAMES)
        self._open = True
        self._failed = False
        self._cutting: asyncio.Task[None] | None = None
        self._peer: FramePeer = router.open(self.send, label, wire_name=wire_name, device_id=device_id, cut=self._cut)
        self._task = asyncio.create_task(self._feed(), name=f"uplink {label}")

    async def send(self, frames: list[bytes]) -> None:
        """To the client. Raises: LinkLost."""
        for frame in frames:
            if not self._open:
                raise LinkLost
            await self._send(frame)

    async def put(self, frame: bytes) -> None:
        """From the client. Waits while the daemon is too far behind with its frames, up to `HOLD_UP_LIMIT_S`."""
        if self._failed or self._task.done():
            return
        try:
            self._frames.put_nowait(frame)
        except asyncio.QueueFull:
            await self._put_in_time(frame)

    async def _put_in_time(self, frame: bytes) -> None:
        try:
            async with asyncio.timeout(HOLD_UP_LIMIT_S):
                await self._frames.put(frame)
        except TimeoutError:
            logger.warning("client %s is closed: it is too far ahead of what can be done", self._label)
            self._cut()

    async def aclose(self) -> None:
        """The client or the link has gone; the peer is told once."""
        if not self._open:
            return
        self._open = False
        tasks = [task for task in (self._task, self._cutting) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            async with asyncio.timeout(CLOSE_LIMIT_S):
                await self._peer.close()
        except TimeoutError:
            logger.error("closing client %s took too long", self._label)

    def _cut(self) -> None:
        """The peer gives its client up."""
        if self._open and self._cutting is None:
            self._stop_taking()
            self._cutting = asyncio.create_task(self._tell_hub(), name=f"uplink cut {self._label}")

    async def _tell_hub(self) -> None:
        with contextlib.suppress(LinkLost):
            await self._on_failure()

    def _stop_taking(self) -> None:
        self._failed = True
        # Room for whoever waits to put a frame.
        while not self._frames.empty():
            self._frames.get_nowait()

    async def _feed(self) -> None:
        while True:
            frame = await self._frames.get()
            try:
                await self._peer.receive(frame)
            except LinkLost:
                return
            # Whatever a frame of one client does to its peer, the other clients and the link go on.
            except Exception:
                logger.exception("client %s is closed: its frame could not be handled", self._label)
                self._stop_taking()
                await self._tell_hub()
                return
