"""The sockets under httpcore: limits, a side that is slower than the other, and connections that end."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpcore
import pytest

from lodger_daemon.models.worker.network import AsyncioNetwork
from support.patience import LIMIT_S

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
LARGE = bytes(range(256)) * 256 * 1024
"""64 MiB, more than the buffers of the kernel take."""
SOON_S = 0.05


@asynccontextmanager
async def connected(serve: Serve) -> AsyncIterator[httpcore.AsyncNetworkStream]:
    """A stream to a server that does this with its connection, and then keeps it until the stream is closed."""
    is_left = asyncio.Event()

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await serve(reader, writer)
            await is_left.wait()
        writer.transport.abort()

    async with asyncio.timeout(LIMIT_S), await asyncio.start_server(connection, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        stream = await AsyncioNetwork().connect_tcp("127.0.0.1", port, timeout=LIMIT_S)
        try:
            yield stream
        finally:
            await stream.aclose()
            is_left.set()


async def nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server that neither reads nor writes."""


async def whole(stream: httpcore.AsyncNetworkStream) -> bytes:
    found = bytearray()
    while piece := await stream.read(64 * 1024, timeout=LIMIT_S):
        found += piece
    return bytes(found)


async def test_what_a_fast_server_sends_waits_in_the_kernel() -> None:
    sent = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        for at in range(0, len(LARGE), 64 * 1024):
            writer.write(LARGE[at : at + 64 * 1024])
            await writer.drain()
            sent = at
        writer.close()

    async with connected(serve) as stream:
        begun = await stream.read(1, timeout=LIMIT_S)
        for _ in range(2000):
            # Turns of the loop in which both sides could go on.
            await asyncio.sleep(0)
        assert sent < len(LARGE) / 2
        assert begun + await whole(stream) == LARGE


async def test_a_slow_server_gets_all_that_is_written() -> None:
    is_written, got = asyncio.Event(), bytearray()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while len(got) < len(LARGE):
            got.extend(await reader.read(256 * 1024))
            await asyncio.sleep(0)
        is_written.set()

    async with connected(serve) as stream:
        await stream.write(b"", timeout=LIMIT_S)
        await stream.write(LARGE, timeout=LIMIT_S)
        await is_written.wait()
    assert bytes(got) == LARGE


async def test_silence_has_a_limit_either_way() -> None:
    async with connected(nothing) as stream:
        with pytest.raises(httpcore.ReadTimeout):
            await stream.read(1, timeout=SOON_S)
        with pytest.raises(httpcore.WriteTimeout):
            await stream.write(LARGE, timeout=SOON_S)


async def test_a_write_to_a_server_that_goes_away_ends() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        writer.transport.abort()

    async with connected(serve) as stream:
        with pytest.raises(httpcore.WriteError):
            await stream.write(LARGE, timeout=LIMIT_S)
        with pytest.raises(httpcore.WriteError):
            await stream.write(b"more", timeout=LIMIT_S)


async def test_a_reset_is_told_and_an_end_is_an_end() -> None:
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"begun")
        await writer.drain()
        await reader.readexactly(1)
        # To linger for no time makes the kernel send a reset.
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes((1, 0, 0, 0, 0, 0, 0, 0)))
        writer.transport.abort()

    async with connected(reset) as stream:
        assert await stream.read(64, timeout=LIMIT_S) == b"begun"
        await stream.write(b"x", timeout=LIMIT_S)
        with pytest.raises(httpcore.ReadError, match="Connection reset by peer"):
            await stream.read(64, timeout=LIMIT_S)

    async def end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"begun")
        writer.write_eof()

    async with connected(end) as stream:
        assert await whole(stream) == b"begun"


async def test_what_this_side_closes_is_not_the_end_of_an_answer() -> None:
    async with connected(nothing) as stream:
        reading = asyncio.create_task(stream.read(1, timeout=LIMIT_S))
        await asyncio.sleep(0)
        await stream.aclose()
        with pytest.raises(httpcore.ReadError, match="by this side"):
            await reading


async def test_a_read_that_is_given_up_leaves_the_next_one_whole() -> None:
    asked = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asked.wait()
        writer.write(b"answer")

    async with connected(serve) as stream:
        reading = asyncio.create_task(stream.read(1, timeout=LIMIT_S))
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        asked.set()
        assert await stream.read(64, timeout=LIMIT_S) == b"answer"


async def test_closing_does_not_wait_for_what_nobody_reads() -> None:
    got, is_closed, is_over = 0, asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal got
        await is_closed.wait()
        while piece := await reader.read(256 * 1024):
            got += len(piece)
        is_over.set()

    async with connected(serve) as stream:
        writing = asyncio.create_task(stream.write(LARGE, timeout=LIMIT_S))
        await asyncio.sleep(0)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        await stream.aclose()
        is_closed.set()
        await is_over.wait()
    assert 0 < got < len(LARGE)


@pytest.mark.parametrize("last_words", [b"", b"HTTP/1.1 408 Request Timeout\r\n\r\n"])
async def test_a_kept_connection_that_the_server_has_left_is_seen(last_words: bytes) -> None:
    is_asked = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await is_asked.wait()
        writer.write(last_words)
        if not last_words:
            writer.write_eof()

    async with connected(serve) as stream:
        assert not stream.get_extra_info("is_readable")
        assert stream.get_extra_info("nothing known") is None
        is_asked.set()
        while not stream.get_extra_info("is_readable"):  # noqa: ASYNC110 - what is asked for is that nobody has to wait
            await asyncio.sleep(0)


async def test_nobody_there_is_told_in_words() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(httpcore.ConnectError, match="Connection refused"):
            await AsyncioNetwork().connect_tcp("127.0.0.1", taken.getsockname()[1], timeout=LIMIT_S)


async def test_tls_with_a_server_that_goes_away_or_says_nothing_ends() -> None:
    async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        writer.close()

    context = ssl.create_default_context()
    async with connected(leave) as stream:
        with pytest.raises(httpcore.ConnectError):
            await stream.start_tls(context, "provider.invalid", timeout=LIMIT_S)
    async with connected(nothing) as stream:
        with pytest.raises(httpcore.ConnectTimeout):
            await stream.start_tls(context, "provider.invalid", timeout=SOON_S)

    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with connected(babble) as stream:
        with pytest.raises(httpcore.ConnectError, match="SSL"):
            await stream.start_tls(context, "provider.invalid", timeout=LIMIT_S)


async def test_what_came_in_the_clear_is_not_read_as_if_it_were_safe() -> None:
    async def forge(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"accepted" + b"forged")

    async with connected(forge) as stream:
        assert await stream.read(8, timeout=LIMIT_S) == b"accepted"
        with pytest.raises(httpcore.ConnectError, match="before SSL"):
            await stream.start_tls(ssl.create_default_context(), "provider.invalid", timeout=LIMIT_S)
