"""One socket of the relay, whoever is at its other end, and how it ends."""

import asyncio
import contextlib
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Final

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from lodger_hub.options import RelayLimits
from lodger_hub.relay.outgoing import Outgoing, PeerStuck

CLOSE_LIMIT_S: Final = 2.0
"""With `ABORT_AFTER_S` of the server's sockets below the 5 s in which a revoked device's socket is gone."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How the hub closes a socket."""

    code: int
    reason: str


REPLACED: Final = Ending(1000, "Replaced by new connection")
"""Exactly this reason tells a daemon not to dial again (PROTOCOL.md 1.5)."""
UNKNOWN_LEASE: Final = Ending(1008, "unknown connection id")
TOO_LARGE: Final = Ending(1009, "frame too large")
TOO_SLOW: Final = Ending(1013, "too slow: connect again and resume")
MACHINE_GONE: Final = Ending(1013, "the machine disconnected")
CLOSED_BY_MACHINE: Final = Ending(1011, "closed by the machine")
SILENT: Final = Ending(1011, "nothing heard for too long")
STUCK: Final = Ending(1011, "frames were not taken")
REVOKED: Final = Ending(1008, "the token is no longer valid")
"""A daemon takes 1008 for a lease that is not known, registers again and is told that its token is not valid."""
MALFORMED: Final = Ending(1007, "not a frame of this protocol")


class SocketLink:
    """A socket, its outgoing queue and its end."""

    def __init__(self, socket: WebSocket, limits: RelayLimits) -> None:
        self.socket = socket
        self.limits = limits
        self.out = Outgoing(limits.queue_frames, limits.queue_bytes)
        self._cut: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()

    def cut(self, ending: Ending) -> None:
        """End the socket from any task. The first reason counts."""
        if not self._cut.done():
            self._cut.set_result(ending)

    @property
    def is_cut(self) -> bool:
        return self._cut.done()

    async def run(self, read: Coroutine[object, object, Ending | None]) -> None:
        """Read and write until either ends or the link is cut, then close the socket."""
        ending = await self._until_end(read)
        if ending is not None and self.socket.application_state is WebSocketState.CONNECTED:
            with contextlib.suppress(TimeoutError, RuntimeError, OSError, WebSocketDisconnect):
                async with asyncio.timeout(CLOSE_LIMIT_S):
                    await self.socket.close(ending.code, ending.reason)

    async def receive_text(self, limit_s: float | None = None) -> str | None:
        """The next frame as text, or nothing when the socket has closed. Raises: TimeoutError, UnicodeDecodeError."""
        async with asyncio.timeout(limit_s):
            message = await self.socket.receive()
        if message["type"] == "websocket.disconnect":
            return None
        text = message.get("text")
        if text is None:
            text = message["bytes"].decode()
        assert isinstance(text, str)
        return text

    async def _until_end(self, read: Coroutine[object, object, Ending | None]) -> Ending | None:
        reader = asyncio.ensure_future(read)
        writer = asyncio.ensure_future(self.out.drain(self.socket.send_text, self.limits.send_limit_s))
        tasks: list[asyncio.Future[object]] = [reader, writer, self._cut]  # type: ignore[list-item] # read only
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            reader.cancel()
            writer.cancel()
            results = await asyncio.gather(reader, writer, return_exceptions=True)
        if self._cut.done():
            return self._cut.result()
        return _ending_of(results[0], results[1])


def _ending_of(read: Ending | BaseException | None, written: BaseException | None) -> Ending | None:
    """What the tasks' ends mean for the socket; an error that is none of the expected ones is raised."""
    if isinstance(written, PeerStuck):
        return STUCK
    if isinstance(written, WebSocketDisconnect | OSError | RuntimeError):
        return None
    if isinstance(read, TimeoutError):
        return SILENT
    if isinstance(read, UnicodeDecodeError):
        return MALFORMED
    if isinstance(read, asyncio.CancelledError):
        return None
    if isinstance(read, BaseException):
        raise read
    return read
