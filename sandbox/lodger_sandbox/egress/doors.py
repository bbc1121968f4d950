"""One accepted connection from a box: which proxy protocol it speaks, where it wants to go, and the way there."""

import asyncio
import contextlib
import logging
import select
import socket
from dataclasses import dataclass
from typing import Final, Protocol

from lodger_sandbox.egress.core.addresses import IpAddress
from lodger_sandbox.egress.core.hosts import Destination
from lodger_sandbox.egress.dialling import dial
from lodger_sandbox.egress.gate import Gate, NotAllowed

HELLO_LIMIT_S: Final = 30.0
"""A program that opens a connection and says nothing is let go."""
PIECE_BYTES: Final = 64 * 1024
CONNECTIONS_PER_BOX: Final = 256
ACCEPT_AGAIN_S: Final = 1.0

logger = logging.getLogger(__name__)


class Way(Protocol):
    """How a door gets to the network; the only way it has."""

    async def to(self, destination: Destination) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Raises: NotAllowed, NotReached."""
        ...


@dataclass(frozen=True, slots=True)
class GatedWay:
    gate: Gate
    box: str

    async def to(self, destination: Destination) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        await self.gate.admit(self.box, destination)

        def judge(address: IpAddress) -> None:
            self.gate.judge_address(destination, address)

        try:
            return await dial(destination, judge)
        except NotAllowed as error:
            raise self.gate.denied(self.box, destination, str(error)) from None


class Doors:
    """All connections of one box, on one listening socket that lives in the box's network namespace."""

    def __init__(self, listener: socket.socket, way: Way) -> None:
        self._listener = listener
        self._way = way
        self._open = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._ready = select.poll()
        self._closed = False

    async def open(self) -> None:
        self._ready.register(self._listener, select.POLLIN)
        self._listen()

    def _listen(self) -> None:
        if not self._closed:
            asyncio.get_running_loop().add_reader(self._listener.fileno(), self._accept)

    @property
    def busy(self) -> bool:
        """Whether a connection is open."""
        return self._open > 0

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            asyncio.get_running_loop().remove_reader(self._listener.fileno())
            self._listener.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self) -> None:
        """One at a time, and only when one waits: the box has a copy of the socket, so whether it blocks is not ours to
        say, and one that blocks would hold up every box."""
        self._listener.setblocking(False)
        if not self._ready.poll(0):
            return
        try:
            connection, _ = self._listener.accept()
        except OSError:
            # Most likely there are no descriptors left; those that wait are still there then.
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._listener.fileno())
            loop.call_later(ACCEPT_AGAIN_S, self._listen)
            return
        connection.setblocking(False)
        joining = asyncio.ensure_future(self._join(connection))
        self._tasks.add(joining)
        joining.add_done_callback(self._tasks.discard)

    async def _join(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()

        def protocol() -> asyncio.StreamReaderProtocol:
            reader = asyncio.StreamReader(limit=PIECE_BYTES, loop=loop)
            return asyncio.StreamReaderProtocol(reader, self._accepted, loop=loop)

        await loop.connect_accepted_socket(protocol, connection)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._open += 1
        try:
            if self._open <= CONNECTIONS_PER_BOX:
                await self._serve(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        except Exception:
            # The one place where whatever a program in a box sends ends its connection instead of the broker.
            logger.exception("a connection from a box broke the broker's expectations")
        finally:
            self._open -= 1
            self._tasks.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from lodger_sandbox.egress.http_door import serve_http
        from lodger_sandbox.egress.socks_door import SOCKS_VERSION, serve_socks

        async with asyncio.timeout(HELLO_LIMIT_S):
            first = await reader.readexactly(1)
        if first[0] == SOCKS_VERSION:
            await serve_socks(reader, writer, self._way)
        else:
            await serve_http(first, reader, writer, self._way)


async def both_ways(
    here: tuple[asyncio.StreamReader, asyncio.StreamWriter], there: tuple[asyncio.StreamReader, asyncio.StreamWriter]
) -> None:
    """Bytes in both directions until both have ended. One side may end its half first."""
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(_copy(here[0], there[1]))
            group.create_task(_copy(there[0], here[1]))
    except* OSError:
        pass
    finally:
        there[1].close()


async def _copy(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
    while piece := await source.read(PIECE_BYTES):
        to.write(piece)
        await to.drain()
    with contextlib.suppress(OSError):
        to.write_eof()
