"""What the egress broker costs: the delay it adds to a small request, and how much of loopback's throughput is left.

Run alone: `PYTHONPATH=tests .venv/bin/python -m benchmarks.egress_cost`. It takes about 10 s. The broker is a process
of its own, as a daemon starts it; its door listens in this network instead of a box's, which costs the same. The server
is a process of its own too. There is no goal, the figures are told.
"""

import argparse
import asyncio
import contextlib
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from lodger_daemon.network.broker_link import BrokerLink
from lodger_daemon.network.broker_process import start_broker
from lodger_sandbox.egress.core.allow import parse_allow_list
from lodger_sandbox.egress.core.wire import End, Ping, Serve, SetAllowList

REQUESTS = 400
WARM = 50
BODY_MIB = 256
LIMIT_S = 60.0
PIECE = bytes(256 * 1024)
Address = tuple[str, int]


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
def server_process() -> Any:
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.egress_cost", "--serve"], stdout=subprocess.PIPE, text=True
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
    "straight": straight,
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
        raise SystemExit(f"{way}: {got} bytes came of {size_bytes}")
    return time.perf_counter() - began


def measured(way: str, there: Address, door: Address, requests: int, body_mib: int) -> dict[str, float]:
    times_ms = [fetch(way, there, door, 100) * 1000 for _ in range(requests + WARM)][WARM:]
    cuts = statistics.quantiles(times_ms, n=100)
    body_s = statistics.median(fetch(way, there, door, body_mib * 1024 * 1024) for _ in range(3))
    return {"p50_ms": round(cuts[49], 2), "p99_ms": round(cuts[98], 2), "mib_per_s": round(body_mib / body_s)}


async def measure(requests: int, body_mib: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, server_process() as port:
        there = ("127.0.0.1", port)
        async with broker_process(Path(folder) / "egress", there) as door:
            return {way: await asyncio.to_thread(measured, way, there, door, requests, body_mib) for way in WAYS}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--mib", type=int, default=BODY_MIB)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve:
        asyncio.run(serve())
        return 0
    print(json.dumps(asyncio.run(measure(chosen.requests, chosen.mib)), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
