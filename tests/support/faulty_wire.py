"""A TCP proxy that does what networks do to git: refuses, answers with an error page, goes silent, cuts in mid-pack."""

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from support.patience import LIMIT_S


class Fault(StrEnum):
    NONE = "none"
    REFUSE = "refuse"
    UNAVAILABLE = "503"
    SILENT = "silent"
    """Takes the request and says nothing, until it hangs up."""
    CUT_REQUEST = "cut request"
    CUT_ANSWER = "cut answer"
    KILLED = "killed"
    """Every git of the other side dies at some moment of the work, by `kill -9`."""


SILENCE_S = 0.3
CUT_AFTER_BYTES = 700
"""Beyond an HTTP head, within a pack."""
KILLED_WITHIN_S = 0.03
"""About what a push takes there."""


@dataclass(slots=True)
class FaultyWire:
    url: str
    faults: list[Fault] = field(default_factory=list)
    """For the next connections, one each; afterwards none."""
    kill: Callable[[], None] = lambda: None
    draw: random.Random = field(default_factory=random.Random)


@contextmanager
def running_faulty_wire(upstream: str) -> Iterator[FaultyWire]:
    host, _, port = upstream.removeprefix("http://").partition(":")
    wire = FaultyWire("")
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        fault = wire.faults.pop(0) if wire.faults else Fault.NONE
        with suppress(OSError):
            await _one(wire, fault, reader, writer, host, int(port))
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        wire.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        ready.set()
        async with server:
            await server.serve_forever()

    def own(work: Coroutine[Any, Any, None]) -> None:
        tasks.add(loop.create_task(work))

    def run() -> None:
        own(main())
        loop.run_forever()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.gather(*asyncio.all_tasks(loop), return_exceptions=True))
        loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(LIMIT_S)
    try:
        yield wire
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(LIMIT_S)


async def _one(
    wire: FaultyWire,
    fault: Fault,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    host: str,
    port: int,
) -> None:
    match fault:
        case Fault.REFUSE:
            return
        case Fault.UNAVAILABLE:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 503 Away\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
        case Fault.SILENT:
            await reader.read(1)
            await asyncio.sleep(SILENCE_S)
        case Fault.NONE | Fault.CUT_REQUEST | Fault.CUT_ANSWER | Fault.KILLED:
            there_reader, there_writer = await asyncio.open_connection(host, port)
            killing = asyncio.create_task(_kill_soon(wire)) if fault is Fault.KILLED else None
            try:
                await _both_ways(fault, (reader, writer), (there_reader, there_writer))
            finally:
                there_writer.close()
                if killing is not None:
                    await killing


async def _kill_soon(wire: FaultyWire) -> None:
    await asyncio.sleep(wire.draw.uniform(0, KILLED_WITHIN_S))
    await asyncio.to_thread(wire.kill)


async def _both_ways(
    fault: Fault,
    here: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    there: tuple[asyncio.StreamReader, asyncio.StreamWriter],
) -> None:
    requests = asyncio.create_task(_pass_on(here[0], there[1], fault is Fault.CUT_REQUEST))
    answers = asyncio.create_task(_pass_on(there[0], here[1], fault is Fault.CUT_ANSWER))
    try:
        await asyncio.wait({requests, answers}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (requests, answers):
            task.cancel()
        await asyncio.gather(requests, answers, return_exceptions=True)


async def _pass_on(source: asyncio.StreamReader, to: asyncio.StreamWriter, cut: bool) -> None:
    passed = 0
    while piece := await source.read(64 * 1024):
        if cut:
            piece = piece[: max(0, CUT_AFTER_BYTES - passed)]
        to.write(piece)
        await to.drain()
        passed += len(piece)
        if cut and passed >= CUT_AFTER_BYTES:
            return
