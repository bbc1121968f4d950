"""The server's WebSockets, with an end that a peer cannot put off."""

import asyncio
import contextlib
import socket
import struct
from typing import Any, Final

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

ABORT_AFTER_S: Final = 2.0
"""For the closing handshake and what is still to be sent, once the hub is done with a socket."""


class EndingSocket(WebSocketsSansIOProtocol):
    """A peer that neither reads nor answers a close would otherwise keep its connection, since what was written to it
    is flushed first. A revoked device's must be gone within 5 s."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.close_timeout = ABORT_AFTER_S

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
