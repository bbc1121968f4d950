"""The sockets under httpcore, as asyncio has them.

httpcore's own go through anyio, which spends a cancel scope on each read and write, and on most a turn of the event
loop.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import Iterable
from typing import Final

import httpcore

_ROOM_BYTES: Final = 64 * 1024
"""What may wait for its reader, as much as httpcore takes at once; one more read of the loop's may come on top."""
_SECOND_ADDRESS_AFTER_S: Final = 0.25
"""How long the first address of a name is tried alone (RFC 8305)."""


class AsyncioNetwork(httpcore.AsyncNetworkBackend):
    """Where httpcore's connections come from."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """The last two arguments are never given by us, and not served."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout):
                _, stream = await loop.create_connection(
                    _Stream, host, port, happy_eyeballs_delay=_SECOND_ADDRESS_AFTER_S
                )
        except TimeoutError as fault:
            raise httpcore.ConnectTimeout from fault
        except OSError as fault:
            raise httpcore.ConnectError(_words(fault)) from fault
        return stream

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class _Stream(asyncio.Protocol, httpcore.AsyncNetworkStream):
    """One connection. httpcore has one request on it at a time, so one task reads and writes."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._arrived = bytearray()
        self._is_held = False
        """Reading is paused: the task is slower than the server."""
        self._is_full = False
        """Writing is paused: the server is slower than the task."""
        self._is_over = False
        """Nothing more arrives."""
        self._fault: BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None

    # -- called by the event loop --

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._arrived += data
        if len(self._arrived) > _ROOM_BYTES and not self._is_held:
            self._is_held = True
            self._wire.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self._is_over = True
        self._wake()

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_over = True
        self._fault = self._fault or exc
        self._wake()

    # -- called by httpcore --

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        try:
            async with asyncio.timeout(timeout):
                while not self._arrived and not self._is_over:
                    await self._woken()
        except TimeoutError as fault:
            raise httpcore.ReadTimeout from fault
        if not self._arrived and self._fault is not None:
            raise httpcore.ReadError(_words(self._fault))
        piece = bytes(self._arrived[:max_bytes])
        del self._arrived[:max_bytes]
        if self._is_held and len(self._arrived) <= _ROOM_BYTES:
            self._is_held = False
            self._wire.resume_reading()
        return piece

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if self._wire.is_closing():
            raise httpcore.WriteError("The connection is closed.")
        self._wire.write(buffer)
        try:
            async with asyncio.timeout(timeout):
                while self._is_full and not self._wire.is_closing():
                    await self._woken()
        except TimeoutError as fault:
            raise httpcore.WriteTimeout from fault
        if self._is_full:
            raise httpcore.WriteError("The connection was closed while the request was sent.")

    async def aclose(self) -> None:
        """At once: what is not yet sent belongs to a request that nobody waits for any more."""
        # Whoever reads on must not take this for the end of an answer.
        self._fault = self._fault or ConnectionAbortedError("The connection was closed by this side.")
        self._wire.abort()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        if self._arrived or self._is_over:
            # Later it would be read as if it had come in safety: a proxy could answer for the server behind it.
            self._wire.abort()
            raise httpcore.ConnectError("Something came, or the connection ended, before SSL began.")
        try:
            async with asyncio.timeout(timeout):
                self._transport = await self._loop.start_tls(
                    self._wire, self, ssl_context, server_hostname=server_hostname
                )
        except BaseException as fault:
            self._wire.abort()
            if isinstance(fault, TimeoutError):
                raise httpcore.ConnectTimeout from fault
            if isinstance(fault, OSError):
                raise httpcore.ConnectError(_words(fault)) from fault
            raise
        if self._transport is None:
            # What `start_tls` gives when the connection is lost at its very end.
            raise httpcore.ConnectError("The connection was closed while it was made safe.")
        return self

    def get_extra_info(self, info: str) -> object:
        match info:
            case "ssl_object":
                return self._wire.get_extra_info("ssl_object")
            case "is_readable":
                # Asked of a kept connection, where whatever comes unasked means that the server has done with it.
                return self._is_over or bool(self._arrived)
        return None

    # -- within --

    @property
    def _wire(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport

    async def _woken(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _words(fault: BaseException) -> str:
    """Such as "Connection refused", without which call failed for which address."""
    # Names that are not known and certificates that are not believed have numbers and words of their own.
    if isinstance(fault, OSError) and not isinstance(fault, ssl.SSLError | socket.gaierror) and fault.errno:
        return os.strerror(fault.errno)
    return str(fault) or type(fault).__name__
