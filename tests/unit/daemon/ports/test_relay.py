"""What a relay does with bytes that come before its other end is there."""

import asyncio
from asyncio import selector_events
from collections.abc import Callable
from typing import Any

import pytest

from lodger_daemon.ports.relay import Relay, Side
from lodger_daemon.system_clock import SystemClock


def _begins_to_read_though_paused(transport: Any, fd: int, callback: Callable[..., None], *args: object) -> None:
    """As the transports of Python 3.11.2 do."""
    if not transport.is_closing():
        transport._loop._add_reader(fd, callback, *args)


@pytest.mark.parametrize("is_old", [False, True])
async def test_what_is_sent_before_the_other_end_is_there_reaches_it(
    monkeypatch: pytest.MonkeyPatch, is_old: bool
) -> None:
    if is_old:
        monkeypatch.setattr(selector_events._SelectorTransport, "_add_reader", _begins_to_read_though_paused)  # type: ignore[attr-defined]
    may_connect = asyncio.Event()
    loop = asyncio.get_running_loop()
    carrying: list[asyncio.Task[None]] = []

    async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.readline()).upper())
        writer.close()

    inside = await asyncio.start_server(shout, "127.0.0.1", 0)

    async def connect(side: Side) -> None:
        await may_connect.wait()
        await loop.create_connection(lambda: side, *inside.sockets[0].getsockname())

    def opened(relay: Relay) -> None:
        carrying.append(asyncio.create_task(relay.run(connect)))

    outside = await loop.create_server(lambda: Relay(SystemClock(), opened, lambda _: None).outer, "127.0.0.1", 0)
    async with inside, outside, asyncio.timeout(10):
        reader, writer = await asyncio.open_connection(*outside.sockets[0].getsockname())
        writer.write(b"hello\n")
        # One that connects later and is answered has given the loop time to read what the first has sent.
        await _round_trip(inside.sockets[0].getsockname())
        may_connect.set()
        assert await reader.read() == b"HELLO\n"
        writer.close()
        await asyncio.gather(*carrying)


async def _round_trip(address: tuple[str, int]) -> None:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(b"first\n")
    assert await reader.read() == b"FIRST\n"
    writer.close()
