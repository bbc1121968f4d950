"""Open ports that people reach through the hub: for each a socket that says it is shared, for each connection another.

A connection of its own for each one, with its own flow control, so that a large download holds up no turn. What a
browser is let in by is between it and the hub; the hub reaches nothing here but ports that the person opened.
"""

import asyncio
import contextlib
import json
import logging
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from lodger_daemon.ports.dialling import NotReached
from lodger_daemon.ports.forward import ALL_CONNECTIONS, CONNECTIONS
from lodger_daemon.ports.ports import NotOpened, Ports
from lodger_daemon.waiting import until_one_ends

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

OPEN_WITHIN_S: Final = 15.0
EOF: Final = "eof"
PIECE_BYTES: Final = 64 * 1024
FRAME_LIMIT_BYTES: Final = 1024 * 1024
PING_S: Final = 30.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HubAddress:
    url: str
    """`http://…` or `https://…`, without a slash at its end."""
    token: Callable[[], Awaitable[str]]
    """The machine's. May raise OSError, LookupError."""
    tls: Callable[[], ssl.SSLContext]
    """Blocking."""


@dataclass(slots=True)
class _Shared:
    """One port of one box, from its announcement on."""

    id: "asyncio.Future[str]"
    task: "asyncio.Task[None] | None" = None
    connections: "set[asyncio.Task[None]]" = field(default_factory=set)


class HubShares:
    """Event loop only."""

    def __init__(self, ports: Ports, hub: HubAddress | None) -> None:
        self._ports = ports
        self._hub = hub
        self._tls: ssl.SSLContext | None = None
        self._shared: dict[tuple[str, int], _Shared] = {}
        ports.tell_of_closing(self._closed)

    async def share(self, box: str, port: int) -> str:
        """The hub's name for this open port, under which it lets people in. Raises: NotOpened."""
        if self._hub is None:
            raise NotOpened("this machine has no hub")
        if not self._ports.is_open(box, port):
            raise NotOpened(f"port {port} is not open; `lodger ports open {port}` opens it")
        shared = self._shared.get((box, port))
        if shared is None:
            shared = self._shared[box, port] = _Shared(asyncio.get_running_loop().create_future())
            shared.task = asyncio.create_task(self._keep(self._hub, box, port, shared), name=f"shared port {port}")
        try:
            async with asyncio.timeout(OPEN_WITHIN_S):
                return await asyncio.shield(shared.id)
        except TimeoutError as error:
            raise NotOpened("the hub does not answer") from error

    def is_shared(self, box: str, port: int) -> bool:
        shared = self._shared.get((box, port))
        return shared is not None and shared.id.done()

    def _closed(self, box: str, port: int) -> None:
        shared = self._shared.get((box, port))
        if shared is not None and shared.task is not None:
            shared.task.cancel()

    async def aclose(self) -> None:
        tasks = [shared.task for shared in self._shared.values() if shared.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep(self, hub: HubAddress, box: str, port: int, shared: _Shared) -> None:
        """Until the port closes or the hub ends it; then whoever wants it asks again."""
        from websockets.exceptions import WebSocketException

        why = "the hub shares it no more"
        try:
            control = await self._dial(hub, "/v1/ports/ws")
            try:
                await self._hear(hub, control, box, port, shared)
            finally:
                control.transport.abort()
        except (OSError, LookupError, ValueError, RecursionError, EOFError, WebSocketException) as error:
            why = f"the hub does not share this port: {error}"
            _log.info("port %d: %s", port, why)
        finally:
            if self._shared.get((box, port)) is shared:
                del self._shared[box, port]
            for task in shared.connections:
                task.cancel()
            await asyncio.gather(*shared.connections, return_exceptions=True)
            if not shared.id.done():
                shared.id.set_exception(NotOpened(why))
                shared.id.exception()

    async def _hear(self, hub: HubAddress, control: "ClientConnection", box: str, port: int, shared: _Shared) -> None:
        async for text in control:
            word: Any = json.loads(text)
            match word:
                case {"type": "shared", "share": str(name)} if not shared.id.done():
                    shared.id.set_result(name)
                case {"type": "stream", "stream": str(name)} if self._has_room(shared):
                    task = asyncio.create_task(self._carry(hub, box, port, name), name=f"shared port {port}")
                    shared.connections.add(task)
                    task.add_done_callback(shared.connections.discard)
                case _:
                    continue

    def _has_room(self, shared: _Shared) -> bool:
        """Whoever waits in vain is told by the hub."""
        of_all = sum(len(one.connections) for one in self._shared.values())
        return len(shared.connections) < CONNECTIONS and of_all < ALL_CONNECTIONS

    async def _carry(self, hub: HubAddress, box: str, port: int, name: str) -> None:
        from websockets.exceptions import WebSocketException

        try:
            reader, writer = await asyncio.open_connection(sock=await self._ports.dial(box, port), limit=PIECE_BYTES)
        except (NotReached, NotOpened, OSError) as error:
            _log.info("a connection to a shared port failed: %s", error)
            await self._refuse(hub, name)
            return
        try:
            stream = await self._dial(hub, f"/v1/ports/streams/{quote(name, safe='')}/ws")
            try:
                await _both_ways(stream, reader, writer)
            finally:
                stream.transport.abort()
        except (OSError, LookupError, EOFError, WebSocketException) as error:
            _log.info("a connection to a shared port ended: %s", error)
        finally:
            writer.transport.abort()

    async def _refuse(self, hub: HubAddress, name: str) -> None:
        """So that nobody waits there for a program that is gone."""
        from websockets.exceptions import WebSocketException

        with contextlib.suppress(OSError, LookupError, EOFError, WebSocketException):
            await (await self._dial(hub, f"/v1/ports/streams/{quote(name, safe='')}/ws")).close()

    async def _dial(self, hub: HubAddress, path: str) -> "ClientConnection":
        """Raises: OSError, LookupError, EOFError, WebSocketException."""
        from websockets.asyncio.client import connect

        secure = hub.url.startswith("https:")
        if secure and self._tls is None:
            self._tls = await asyncio.to_thread(hub.tls)
        return await connect(
            hub.url.replace("http", "ws", 1) + path,
            additional_headers={"Authorization": f"Bearer {await hub.token()}"},
            compression=None,
            ssl=self._tls if secure else None,
            open_timeout=OPEN_WITHIN_S,
            ping_interval=PING_S,
            # A download that fills the path may keep an answer waiting; TCP finds what is dead.
            ping_timeout=None,
            close_timeout=2.0,
            max_size=FRAME_LIMIT_BYTES,
            proxy=None,
        )


async def _both_ways(stream: "ClientConnection", reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Raises: OSError, WebSocketException."""

    async def inward() -> None:
        async for data in stream:
            if isinstance(data, bytes):
                writer.write(data)
                await writer.drain()
            elif data == EOF:
                writer.write_eof()

    async def outward() -> None:
        while data := await reader.read(PIECE_BYTES):
            await stream.send(data)
        await stream.send(EOF)
        # Until the hub has taken what is under way; it ends the connection then.
        await stream.wait_closed()

    await until_one_ends(inward(), outward())
