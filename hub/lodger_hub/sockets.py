"""The server's connections, with limits that a peer cannot put off."""

import asyncio
import contextlib
import socket
import struct
from typing import ClassVar, Final

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

ABORT_AFTER_S: Final = 2.0
"""For the closing handshake and what is still to be sent, once the hub is done with a socket."""


class EndingSocket(WebSocketsSansIOProtocol):
    """A peer that neither reads nor answers a close would otherwise keep its connection, since what was written to it
    is flushed first. A revoked device's must be gone within 5 s."""

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        # A refusal answers the handshake too; otherwise each would be reported in the log as a fault of ours.
        if self.initial_response is not None and self.close_sent:
            self.handshake_complete = True
        if self.close_timer is not None:
            # It would close in order: what the kernel has taken by then would be offered to a peer that takes nothing
            # for as long as that one likes, and nobody could cut it off any more.
            self.close_timer.cancel()
            self.close_timer = self.loop.call_later(ABORT_AFTER_S, self._cut_off)

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        super().on_task_complete(task)
        self.loop.call_later(ABORT_AFTER_S, self._cut_off)

    def _cut_off(self) -> None:
        """Does nothing to a socket that has ended in order."""
        connection = self.transport.get_extra_info("socket")
        # Without this the kernel would go on offering what is left to a peer that takes nothing.
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()


class PromptHttp(H11Protocol):
    """A stranger may hold a connection only as long as a request's head takes; who is let in is then for the routes."""

    head_limit_s: ClassVar[float] = 20.0
    """A few hundred bytes over the worst connection a person would still use."""

    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the class above
        super().connection_made(transport)
        self._watch_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # Set by each head that is complete, and read by nobody after its request has begun.
        if self.headers:
            self._stop_watching()

    def on_response_complete(self) -> None:
        self.headers = []
        super().on_response_complete()
        # A pipelined one may have begun by now.
        if not self.headers:
            self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching()
        super().connection_lost(exc)

    def _watch_head(self) -> None:
        self._stop_watching()
        self._head_timer = self.loop.call_later(self.head_limit_s, self.transport.abort)

    def _stop_watching(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
