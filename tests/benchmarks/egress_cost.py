"""What the egress broker costs: the delay it adds to a small request, and how much of loopback's throughput is left.

`make bench` prints its table; alone it is

    PYTHONPATH=tests .venv/bin/python -m benchmarks.egress_cost [--rounds 3]

and takes about half a minute. The broker is a process of its own, as a daemon starts it; its door listens in this
network instead of a box's, which costs the same. The server is a process of its own too. The ways take turns, request
by request, so that whatever else the machine does meets each of them. There is no goal, the figures are told.
"""

import argparse
import asyncio
import contextlib
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Final

from benchmarks.report import laid_out, spread
from benchmarks.samples import Samples, Summary
from benchmarks.wire_client import BenchmarkError
from lodger_daemon.network.broker_link import BrokerLink
from lodger_daemon.network.broker_process import start_broker
from lodger_sandbox.egress.core.allow import parse_allow_list
from lodger_sandbox.egress.core.wire import End, Ping, Serve, SetAllowList

REQUESTS = 400
WARM = 50
BODY_MIB = 256
BODIES = 3
SMALL_BYTES = 100
LIMIT_S = 60.0
PIECE = bytes(256 * 1024)
Address = tuple[str, int]
STRAIGHT: Final = "straight"


async def serve() -> None:
    """GET /N answers N bytes, then the connection ends; the port is told on standard output."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            head = await reader.readuntil(b"\r\n\r\n")
            left = int(head.split()[1].rpartition(b"/")[2])
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % left)
            while left:
                writer.write(PIECE[: min(left, len(PIECE))])
                left -= min(left, len(PIECE))
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextlib.contextmanager
def server_process() -> Iterator[int]:
    """The port it answers at."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.egress_cost", "--serve"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.terminate()
        process.wait()


@contextlib.asynccontextmanager
async def broker_process(folder: Path, listed: Address) -> AsyncIterator[Address]:
    """Where the broker's door is."""
    answered = asyncio.Event()
    found = start_broker(folder, None)
    link, _ = await BrokerLink.connect(
        found, lambda event: answered.set() if event["is"] == "pong" else None, lambda link: None
    )
    with socket.create_server(("127.0.0.1", 0)) as door:
        try:
            link.say(SetAllowList(parse_allow_list([f"{listed[0]}:{listed[1]}"])))
            link.say(Serve("bench"), door.fileno())
            link.say(Ping(1))
            async with asyncio.timeout(LIMIT_S):
                await answered.wait()
            yield door.getsockname()
        finally:
            link.say(End())
            await link.aclose()


def straight(there: Address, door: Address) -> tuple[Address, bytes, str]:
    return there, b"", ""


def plain(there: Address, door: Address) -> tuple[Address, bytes, str]:
    return door, b"", f"http://{there[0]}:{there[1]}"


def connect(there: Address, door: Address) -> tuple[Address, bytes, str]:
    to = f"{there[0]}:{there[1]}"
    return door, f"CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n".encode(), ""


WAYS: dict[str, Callable[[Address, Address], tuple[Address, bytes, str]]] = {
    STRAIGHT: straight,
    "plain http": plain,
    "connect": connect,
}


def fetch(way: str, there: Address, door: Address, size_bytes: int) -> float:
    """Seconds from nothing to the last byte. Blocks."""
    address, first, prefix = WAYS[way](there, door)
    began = time.perf_counter()
    with socket.create_connection(address, LIMIT_S) as connection:
        if first:
            connection.sendall(first)
            while not first.endswith(b"established\r\n\r\n"):
                first = connection.recv(4096)
        connection.sendall(f"GET {prefix}/{size_bytes} HTTP/1.1\r\nHost: {there[0]}:{there[1]}\r\n\r\n".encode())
        got, buffer = 0, bytearray(1024 * 1024)
        while count := connection.recv_into(buffer):
            got += count
    if got < size_bytes:
        raise BenchmarkError(f"{way}: {got} bytes came of {size_bytes}")
    return time.perf_counter() - began


THROUGH: Final = ("plain http", "connect")
HEAD: Final = (
    "egress broker",
    "unit",
    "straight, median (min to max)",
    "through it, median (min to max)",
    "ratio",
    "added",
)
ROWS: Final = (
    ("small.p50", "ms", "{way}: small request"),
    ("small.p99", "ms", "{way}: small request, p99"),
    ("body", "MiB/s", "{way}: one large body"),
)


class EgressCost:
    """Samples of each way to the same server."""

    def __init__(self, requests: int = REQUESTS, body_mib: int = BODY_MIB) -> None:
        self.ways = {way: Samples() for way in WAYS}
        self.trouble: list[str] = []
        self._requests = requests
        self._body_mib = body_mib

    def samples(self) -> dict[str, object]:
        """All of them, by whose they are."""
        return {way: asdict(samples) for way, samples in self.ways.items()}

    async def round(self) -> None:
        with tempfile.TemporaryDirectory() as folder, server_process() as port:
            there = ("127.0.0.1", port)
            async with broker_process(Path(folder) / "egress", there) as door:
                await asyncio.to_thread(self._measure, there, door)

    def _measure(self, there: Address, door: Address) -> None:
        small_ms: dict[str, list[float]] = {way: [] for way in WAYS}
        for number in range(WARM + self._requests):
            for way in WAYS:
                took_s = fetch(way, there, door, SMALL_BYTES)
                if number >= WARM:
                    small_ms[way].append(took_s * 1000)
        body_bytes = self._body_mib * 1024 * 1024
        rates: dict[str, list[float]] = {way: [] for way in WAYS}
        for _ in range(BODIES):
            for way in WAYS:
                rates[way].append(self._body_mib / fetch(way, there, door, body_bytes))
        for way, samples in self.ways.items():
            samples.next_round()
            samples.add("small.p50", *small_ms[way])
            samples.add("small.p99", statistics.quantiles(small_ms[way], n=100)[98])
            samples.add("body", *rates[way])


def table(cost: EgressCost) -> str:
    """As Markdown that also reads well as plain text."""
    cells = [HEAD]
    for way in THROUGH:
        for key, unit, words in ROWS:
            straight, through = cost.ways[STRAIGHT].summary(key), cost.ways[way].summary(key)
            both = (spread(straight), spread(through))
            cells.append((words.format(way=way), unit, *both, *_cost(unit, straight, through)))
    return laid_out(cells)


def _cost(unit: str, straight: Summary | None, through: Summary | None) -> tuple[str, str]:
    """How many times as much it is through the broker, and of a delay how much longer."""
    if straight is None or through is None or straight.median <= 0:
        return "", ""
    ratio = f"{through.median / straight.median:.2f}"
    return ratio, f"{through.median - straight.median:+.2f} ms" if unit == "ms" else ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="egress_cost", description="What the egress broker costs.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--mib", type=int, default=BODY_MIB)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve:
        asyncio.run(serve())
        return 0
    cost = EgressCost(chosen.requests, chosen.mib)
    for _ in range(chosen.rounds):
        asyncio.run(cost.round())
    print(table(cost))
    return 0


if __name__ == "__main__":
    sys.exit(main())
