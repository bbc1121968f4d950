"""One connection to a program in a box, as the machine carries it: a WebSocket of its own for each.

Its flow control is that of its own TCP connection, so a large download holds up neither turns nor other connections.
Binary frames are bytes; the text frame `eof` says that no more will come from that side.
"""

import asyncio
from typing import Final

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

EOF: Final = "eof"
PIECE_BYTES: Final = 64 * 1024


class Stream:
    """Event loop only."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._ended = False
        self.closed = asyncio.Event()

    async def read(self) -> bytes:
        """Empty once nothing more will come."""
        while not self._ended:
            try:
                message = await self._socket.receive()
            except (WebSocketDisconnect, RuntimeError):
                break
            if message["type"] != "websocket.receive":
                break
            if data := message.get("bytes"):
                return bytes(data)
            if message.get("text") == EOF:
                break
        self._ended = True
        return b""

    async def write(self, data: bytes) -> None:
        """Waits while the machine takes no more. Raises: OSError."""
        for start in range(0, len(data), PIECE_BYTES):
            await self._send({"type": "websocket.send", "bytes": data[start : start + PIECE_BYTES]})

    async def write_eof(self) -> None:
        """Raises: OSError."""
        await self._send({"type": "websocket.send", "text": EOF})

    async def _send(self, message: dict[str, object]) -> None:
        if self.closed.is_set() or self._socket.application_state is not WebSocketState.CONNECTED:
            raise ConnectionResetError("the machine has ended this connection")
        try:
            await self._socket.send(message)
        except (WebSocketDisconnect, RuntimeError) as error:
            raise ConnectionResetError("the machine has ended this connection") from error

    def close(self) -> None:
        """The route that holds the socket then ends it."""
        self.closed.set()
