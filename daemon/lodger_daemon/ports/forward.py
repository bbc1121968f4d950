"""One open port of a box: a socket on this machine's loopback, and the connections that go through it."""

import asyncio
import errno
import logging
import socket
from collections.abc import Set
from typing import Final

from lodger_daemon.clock import Clock
from lodger_daemon.ports.dialling import BoxDialler, NotReached
from lodger_daemon.ports.relay import Relay, Side

LOOPBACK: Final = "127.0.0.1"
CONNECTIONS: Final = 64
"""At once; a browser opens six to one address, and one for each WebSocket."""
ALL_CONNECTIONS: Final = 160
"""Of all open ports of this daemon, and as many through the hub: any user of this machine may connect to them, each
connection takes two descriptors, and the usual limit of a process is 1,024."""
SPARE_AFTER_S: Final = 60.0
"""At the limit, the connection that has been silent for the longest makes room, if it was silent for this long."""
IDLE_LIMIT_S: Final = 3600.0
"""Development servers ping their pages at least every minute; whoever was silent for an hour is gone."""
_FIRST_FREE_PORT: Final = 1024
_BACKLOG: Final = 64
_log = logging.getLogger(__name__)


class Forward:
    """Event loop only. `listen` once, `aclose` at the end."""

    def __init__(self, dialler: BoxDialler, port: int, clock: Clock, of_all: set[Relay]) -> None:
        """
        Args:
            of_all: the connections of all open ports, one set for all of them.
        """
        self.port = port
        self.local_port = 0
        self._dialler = dialler
        self._clock = clock
        self._relays: set[Relay] = set()
        self._of_all = of_all
        self._carrying: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def connections(self) -> int:
        return len(self._relays)

    async def listen(self, wanted: int, never: Set[int]) -> None:
        """At `wanted` of 127.0.0.1 if that is free and not among `never`, else at any other. Raises: OSError."""
        loop = asyncio.get_running_loop()
        made = _bound(wanted, never)
        try:
            self._server = await loop.create_server(self._accepted, sock=made, backlog=_BACKLOG)
        except BaseException:
            made.close()
            raise
        self.local_port = made.getsockname()[1]

    def close(self) -> None:
        """Nobody is let in any more, and who is in is cut off; at once."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        for task in self._carrying:
            task.cancel()
        for relay in tuple(self._relays):
            relay.abort()

    async def aclose(self) -> None:
        self.close()
        await asyncio.gather(*self._carrying, return_exceptions=True)
        # The transports close in the loop's next turn.
        await asyncio.sleep(0)

    def _accepted(self) -> Side:
        return Relay(self._clock, self._opened, self._ended).outer

    def _opened(self, relay: Relay) -> None:
        self._make_room()
        if len(self._relays) >= CONNECTIONS or len(self._of_all) >= ALL_CONNECTIONS or self._server is None:
            relay.abort()
            return
        self._relays.add(relay)
        self._of_all.add(relay)
        task = asyncio.create_task(self._carry(relay), name=f"port {self.port}")
        self._carrying.add(task)
        task.add_done_callback(self._carrying.discard)

    def _ended(self, relay: Relay) -> None:
        self._relays.discard(relay)
        self._of_all.discard(relay)

    async def _carry(self, relay: Relay) -> None:
        try:
            await relay.run(self._connect)
        except (NotReached, OSError) as error:
            _log.info("a connection to a forwarded port failed: %s", error)

    async def _connect(self, inner: Side) -> None:
        made = await self._dialler.dial(self.port)
        try:
            await asyncio.get_running_loop().create_connection(lambda: inner, sock=made)
        except BaseException:
            made.close()
            raise

    def _make_room(self) -> None:
        if len(self._relays) < CONNECTIONS:
            return
        silent = min(self._relays, key=lambda relay: relay.touched_at)
        if self._clock.mono() - silent.touched_at >= SPARE_AFTER_S:
            self._relays.discard(silent)
            silent.abort()

    def end_silent(self) -> None:
        """To be called now and then."""
        for relay in tuple(self._relays):
            if self._clock.mono() - relay.touched_at >= IDLE_LIMIT_S:
                relay.abort()


def _bound(wanted: int, never: Set[int]) -> socket.socket:
    """Raises: OSError."""
    for port in (wanted, 0) if wanted >= _FIRST_FREE_PORT and wanted not in never else (0,):
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((LOOPBACK, port))
            # Two programs may hold one address as long as neither listens; so it is only ours once it does.
            made.listen(_BACKLOG)
            if made.getsockname()[1] in never:
                raise OSError(errno.EADDRINUSE, "the port that the system chose is somebody else's; try again")
        except OSError:
            made.close()
            if port == 0:
                raise
            continue
        made.setblocking(False)
        return made
    raise AssertionError("port 0 is always tried")
