"""Connections from outside to what listens in one box, over sockets that were made in its network."""

import asyncio
import socket
from pathlib import Path
from typing import Final

import lodger_sandbox.ports
from lodger_daemon.network.made_inside import NoSockets, close_all, made_inside
from lodger_daemon.network.network import PROXY_PORT
from lodger_sandbox.ports.dialable_sockets import EACH
from lodger_tools.box.contract import BoxLost
from lodger_tools.box.door import take_door
from lodger_tools.box.record import FoundBox

CONNECT_WITHIN_S: Final = 5.0
"""On loopback it takes no time, unless whatever listens does not accept."""
_PROGRAM: Final = Path(lodger_sandbox.ports.__path__[0]) / "dialable_sockets.py"


class NotReached(Exception):
    """Nothing in the box took the connection; the text says why."""


class BoxDialler:
    """Of one box. Event loop only; `close` it when the box ends."""

    def __init__(self, found: FoundBox) -> None:
        self._found = found
        self._four: list[socket.socket] = []
        self._six: list[socket.socket] = []
        self._making = asyncio.Lock()
        self._closed = False

    async def dial(self, port: int) -> socket.socket:
        """Connected to 127.0.0.1 of the box, or to ::1 where only that listens. Raises: NotReached."""
        try:
            return await self._connected(await self._taken(self._four), ("127.0.0.1", port))
        except ConnectionRefusedError:
            pass
        except OSError as error:
            raise NotReached(f"port {port} of the box: {error}") from error
        if not self._six:
            raise NotReached(f"nothing listens at port {port} of the box")
        try:
            return await self._connected(self._six.pop(), ("::1", port))
        except OSError as error:
            raise NotReached(f"nothing listens at port {port} of the box: {error}") from error

    def close(self) -> None:
        self._closed = True
        self._forget()

    async def _taken(self, stock: list[socket.socket]) -> socket.socket:
        """Raises: NotReached."""
        async with self._making:
            if not stock:
                self._forget()
                await self._make()
            if self._closed:
                raise NotReached("the box has ended")
            return stock.pop()

    async def _make(self) -> None:
        making = asyncio.ensure_future(asyncio.to_thread(make_sockets, self._found))
        try:
            four, six = await asyncio.shield(making)
        except asyncio.CancelledError:
            making.add_done_callback(_discard)
            raise
        self._four += four
        self._six += six
        if self._closed:
            self._forget()

    def _forget(self) -> None:
        close_all((*self._four, *self._six))
        self._four.clear()
        self._six.clear()

    async def _connected(self, made: socket.socket, address: tuple[str, int]) -> socket.socket:
        """Raises: OSError."""
        try:
            async with asyncio.timeout(CONNECT_WITHIN_S):
                await asyncio.get_running_loop().sock_connect(made, address)
        except BaseException:
            made.close()
            raise
        return made


def _discard(making: "asyncio.Future[tuple[tuple[socket.socket, ...], tuple[socket.socket, ...]]]") -> None:
    if not making.cancelled() and making.exception() is None:
        four, six = making.result()
        close_all((*four, *six))


def make_sockets(found: FoundBox) -> tuple[tuple[socket.socket, ...], tuple[socket.socket, ...]]:
    """IPv4 and IPv6 sockets of the box's network, unconnected and non-blocking. Blocks; runs in a thread. Raises:
    NotReached."""
    try:
        with take_door(found, PROXY_PORT) as door:
            counts, made = made_inside(_PROGRAM, door.fileno(), 2 * EACH)
    except (BoxLost, OSError, NoSockets) as error:
        raise NotReached(f"this box's network cannot be entered: {error}") from error
    if len(counts) != 2 or sum(counts) != len(made):
        close_all(made)
        raise NotReached("sockets of the box are missing")
    for one in made:
        one.setblocking(False)
    return made[: counts[0]], made[counts[0] :]
