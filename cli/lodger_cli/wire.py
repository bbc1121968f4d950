"""A client of protocol v2: what `ask`, `chat` and the other commands speak to a daemon, here or through a hub."""

import asyncio
import contextlib
import json
import os
import urllib.parse
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final, Self

from websockets.asyncio.client import ClientConnection, connect, unix_connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

REQUEST_LIMIT_S: Final = 30.0
"""As long as the official clients wait for a response."""
FRAME_LIMIT_BYTES: Final = 64 * 1024 * 1024

Frame = dict[str, Any]


class WireError(Exception):
    """The daemon or the hub cannot be reached, or hung up. The text says which and what to do."""


class Refused(WireError):
    """The daemon or hub was reached and said no. The text is its reason."""


class WireClient:
    """One connection. Requests are awaited; every other frame is read with `events`."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._waiting: dict[str, tuple[str, asyncio.Future[Frame]]] = {}
        self._events: asyncio.Queue[Frame | None] = asyncio.Queue()
        self._counter = 0
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def over_socket(cls, path: Path) -> Self:
        """Connect to the daemon of this machine. Raises: WireError."""
        try:
            return cls(await unix_connect(str(path), uri="ws://localhost/ws", **_OPTIONS))
        except (OSError, InvalidHandshake, TimeoutError) as error:
            raise WireError(f"no daemon answers at {path}: {error}") from error

    @classmethod
    async def over_hub(cls, hub_url: str, token: str, connection_id: str) -> Self:
        """Connect to one machine through its hub. Raises: WireError."""
        base = hub_url.replace("http", "ws", 1).rstrip("/")
        url = f"{base}/v1/environments/{urllib.parse.quote(connection_id, safe='')}/status/ws"
        try:
            socket = await connect(url, additional_headers={"Authorization": f"Bearer {token}"}, **_OPTIONS)
        except (OSError, InvalidHandshake, TimeoutError) as error:
            raise WireError(f"the hub at {hub_url} did not let us through to that machine: {error}") from error
        return cls(socket)

    async def request(self, frame: Frame, limit_s: float = REQUEST_LIMIT_S) -> Frame:
        """Send a command and wait for its response. Raises: WireError."""
        self._counter += 1
        request_id = f"cli-{os.getpid()}-{self._counter}"
        answer: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        expected = "input_accepted" if frame["type"] == "input" else f"{frame['type']}_response"
        self._waiting[request_id] = (expected, answer)
        try:
            await self.send({**frame, "request_id": request_id})
            return await asyncio.wait_for(answer, limit_s)
        except TimeoutError as error:
            raise WireError(f"no answer to {frame['type']} within {limit_s:.0f} s") from error
        finally:
            self._waiting.pop(request_id, None)

    async def send(self, frame: Frame) -> None:
        """Raises: WireError when the connection is gone."""
        try:
            await self._socket.send(json.dumps(frame))
        except ConnectionClosed as error:
            raise WireError("the connection to the daemon was closed") from error

    async def events(self) -> AsyncIterator[Frame]:
        """Every frame that answers no request, in order, until the connection closes."""
        while (frame := await self._events.get()) is not None:
            yield frame

    def waiting(self) -> list[Frame]:
        """Frames that have come and that nobody has read yet; none of them comes again."""
        found: list[Frame] = []
        while not self._events.empty():
            frame = self._events.get_nowait()
            if frame is None:
                self._events.put_nowait(None)
                break
            found.append(frame)
        return found

    async def close(self) -> None:
        self._reader.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reader
        await self._socket.close()

    async def _read(self) -> None:
        try:
            async for message in self._socket:
                self._take(json.loads(message))
        except (ConnectionClosed, ValueError):
            pass
        finally:
            self._events.put_nowait(None)
            for _, answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(WireError("the connection to the daemon was closed"))

    def _take(self, frame: Frame) -> None:
        expected, answer = self._waiting.get(frame.get("request_id", ""), ("", None))
        if answer is not None and frame.get("type") == expected:
            if not answer.done():
                answer.set_result(frame)
            return
        self._events.put_nowait(frame)


_OPTIONS: Final[dict[str, Any]] = {
    "compression": None,
    "max_size": FRAME_LIMIT_BYTES,
    "open_timeout": 10,
    "close_timeout": 1,
    "proxy": None,
}
