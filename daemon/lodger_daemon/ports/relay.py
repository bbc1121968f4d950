"""One forwarded connection: bytes both ways, each side as fast as the other takes them.

A side that ends its sending is told on; the connection ends when both have. What is held of it in memory is one piece
and one buffer for each direction.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from lodger_daemon.clock import Clock

BUFFER_BYTES: Final = 64 * 1024
"""As much as waits for a side that does not read before the other side is read no more."""


class Side(asyncio.Protocol):
    """One end of a relay. What comes in before the other end is there stays in the kernel."""

    def __init__(self, relay: "Relay") -> None:
        self._relay = relay
        self.transport: asyncio.Transport | None = None
        self.other: Side | None = None
        self.has_ended = False
        """It sends nothing any more."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=BUFFER_BYTES)
        # Not at once: Python 3.11.2 (Debian 12) begins to read after this call, also when it was told to pause in it.
        asyncio.get_running_loop().call_soon(self._read_nothing_yet)
        self._relay.side_made(self)

    def _read_nothing_yet(self) -> None:
        if self.other is None and self.transport is not None:
            self.transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        self._relay.touch()
        if self.other is not None and self.other.transport is not None:
            self.other.transport.write(data)

    def eof_received(self) -> bool:
        self.has_ended = True
        other = self.other
        if other is None or other.transport is None:
            return False
        if other.has_ended:
            self._relay.finish()
        elif other.transport.can_write_eof():
            other.transport.write_eof()
        return True

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        self._relay.touch()
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._relay.side_lost(self, broken=exc is not None)


class Relay:
    """Made when somebody connects outside; `run` connects to the other end."""

    def __init__(self, clock: Clock, opened: Callable[["Relay"], None], ended: Callable[["Relay"], None]) -> None:
        """
        Args:
            opened: called once, when the outer end is there.
            ended: called once, when both ends are closed.
        """
        self.outer = Side(self)
        self.inner = Side(self)
        self._clock = clock
        self.touched_at = clock.mono()
        """When a byte last passed."""
        self._opened = opened
        self._ended = ended
        self._is_over = False

    async def run(self, connect: Callable[[Side], Awaitable[object]]) -> None:
        """Let bytes pass once `connect` has made the inner end."""
        # Whoever is refused inside sees a connection that closes, which is what a port nobody listens at looks like.
        try:
            await connect(self.inner)
        except BaseException:
            self.abort()
            raise
        self.inner.other, self.outer.other = self.outer, self.inner
        if self.outer.transport is None or self.inner.transport is None:
            self.abort()
            return
        self.outer.transport.resume_reading()
        self.inner.transport.resume_reading()

    def touch(self) -> None:
        self.touched_at = self._clock.mono()

    def finish(self) -> None:
        """Close both ends once what is under way has been delivered."""
        for side in (self.outer, self.inner):
            if side.transport is not None:
                side.transport.close()

    def abort(self) -> None:
        for side in (self.outer, self.inner):
            if side.transport is not None:
                side.transport.abort()
        self._maybe_over()

    def side_made(self, side: Side) -> None:
        if side is self.outer:
            self._opened(self)

    def side_lost(self, side: Side, *, broken: bool) -> None:
        other = self.inner if side is self.outer else self.outer
        if other.transport is not None:
            if broken:
                other.transport.abort()
            else:
                other.transport.close()
        self._maybe_over()

    def _maybe_over(self) -> None:
        if not self._is_over and self.outer.transport is None and self.inner.transport is None:
            self._is_over = True
            self._ended(self)
