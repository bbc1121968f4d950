"""The egress broker with real sockets: a door as a box has one, a daemon's side, and servers to reach."""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from lodger_sandbox.egress.control import Broker
from lodger_sandbox.egress.core.allow import parse_allow_list
from lodger_sandbox.egress.core.wire import Decide, Hello, Order, Serve, SetAllowList, order_line
from support.patience import LIMIT_S

TOKEN = "broker-token"


@dataclass(slots=True)
class Upstream:
    """A server that remembers the bytes it got and answers each connection with what `answer` makes of them."""

    port: int
    received: list[bytes] = field(default_factory=list)


@contextlib.asynccontextmanager
async def upstream(
    answer: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", port: int = 0
) -> AsyncIterator[Upstream]:
    made = Upstream(0)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(made.received)
        made.received.append(b"")
        with contextlib.suppress(OSError):
            while piece := await reader.read(65536):
                made.received[number] += piece
                if made.received[number].endswith((b"\r\n\r\n", b"!", b"0\r\n\r\n")):
                    writer.write(answer)
                    await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    made.port = server.sockets[0].getsockname()[1]
    async with server:
        yield made


class DaemonSide:
    """What the daemon is to the broker."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.events: asyncio.Queue[dict[str, object]] = asyncio.Queue()

    async def connect(self, token: str = TOKEN) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.connect(str(self._path))
        self._socket.setblocking(False)
        self._reading = asyncio.create_task(self._read())
        self.say(Hello(token))

    def say(self, order: Order, *descriptors: int) -> None:
        socket.send_fds(self._socket, [order_line(order)], descriptors)

    def allow(self, *entries: str) -> None:
        self.say(SetAllowList(parse_allow_list(list(entries))))

    async def event(self, kind: str) -> dict[str, object]:
        """The next event of that kind; others are passed over."""
        async with asyncio.timeout(LIMIT_S):
            while (found := await self.events.get())["is"] != kind:
                pass
        return found

    def decide(self, ask: object, allowed: bool, grant_s: float = 0.0) -> None:
        assert isinstance(ask, int)
        self.say(Decide(ask, allowed, grant_s))

    async def _read(self) -> None:
        loop, left = asyncio.get_running_loop(), b""
        while piece := await loop.sock_recv(self._socket, 65536):
            *lines, left = (left + piece).split(b"\n")
            for line in lines:
                self.events.put_nowait(json.loads(line))
        self.events.put_nowait({"is": "closed"})

    async def aclose(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        self._socket.close()


@dataclass(slots=True)
class Rig:
    broker: Broker
    path: Path
    daemon: DaemonSide
    port: int
    """Where the box's programs find their proxy."""

    async def through(self, *pieces: bytes, end: bool = True) -> bytes:
        """Everything that comes back for these bytes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            for piece in pieces:
                writer.write(piece)
            await writer.drain()
            if end:
                writer.write_eof()
            async with asyncio.timeout(LIMIT_S):
                return await reader.read()
        finally:
            writer.close()


@contextlib.asynccontextmanager
async def broker_rig(folder: Path, ask_limit_s: float = LIMIT_S, orphan_s: float = 1800.0) -> AsyncIterator[Rig]:
    path = folder / "broker"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(8)
    broker = Broker(listener, TOKEN, ask_limit_s, orphan_s)
    running = asyncio.create_task(broker.run())
    door = socket.create_server(("127.0.0.1", 0))
    port = door.getsockname()[1]
    daemon = DaemonSide(path)
    try:
        await daemon.connect()
        await daemon.event("hello")
        descriptor = os.dup(door.fileno())
        daemon.say(Serve("box-1"), descriptor)
        os.close(descriptor)
        door.close()
        yield Rig(broker, path, daemon, port)
    finally:
        await daemon.aclose()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        listener.close()
