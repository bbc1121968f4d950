"""What the hub costs: the delay it adds to a streamed delta, and its memory with many idle machines.

Run alone: `.venv/bin/python -m tests.benchmarks.relay_cost`. It takes about 20 s. Deltas go from a machine's socket to
a client's at a steady rate, through a hub in a process of its own, and for comparison straight over one socket; both
ends are in this process, so one clock times them. The goals are those of the issue: 5 ms at p99, 100 MiB for 1,000
machines.
"""

import argparse
import asyncio
import contextlib
import json
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve

from lodger_protocol.relay import unwrap, wrap

DELTAS = 1500
EVERY_S = 0.005
"""200 deltas a second: faster than any model streams."""
WARM = 100
MACHINES = 1000
GOAL_P99_MS = 5.0
GOAL_MIB = 100.0
SOCKETS: dict[str, Any] = {"compression": None, "max_size": None, "proxy": None, "ping_interval": None}


def delta(number: int) -> bytes:
    """A frame as the daemon streams it, with the moment it was sent."""
    return json.dumps(
        {
            "type": "stream_delta",
            "runtime": {"agent_id": "agent-1", "conversation_id": "default"},
            "event_seq": number,
            "idempotency_key": f"key-{number}",
            "delta": {"message_type": "assistant_message", "id": f"message-{number}", "content": "a few words of it "},
            "sent_at": time.perf_counter(),
        }
    ).encode()


@contextlib.asynccontextmanager
async def hub_process(state: Path) -> AsyncIterator[tuple[str, int]]:
    """A hub's base URL and process id."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "lodger_hub.server", "--state", str(state), "--port", "0", stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        line = json.loads(await asyncio.wait_for(process.stdout.readline(), 30))
        yield line["url"], process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        await process.wait()


async def register(url: str, token: str, device_id: str) -> str:
    """Where this machine's socket is."""

    def ask() -> str:
        body = {"deviceId": device_id, "connectionName": device_id, "metadata": {"relay_envelope": True}}
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        request = urllib.request.Request(
            f"{url}/v1/environments/register", data=json.dumps(body).encode(), headers=headers
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            return str(json.loads(response.read())["wsUrl"])

    return f"{await asyncio.to_thread(ask)}&deviceId={device_id}&connectionName={device_id}"


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def delays_ms(send: Callable[[bytes], Awaitable[None]], client: ClientConnection, count: int) -> list[float]:
    """Send at the rate and time each delta at the client."""
    taken: list[float] = []

    async def receive() -> None:
        for _ in range(count):
            frame = json.loads(await client.recv())
            taken.append((time.perf_counter() - frame["sent_at"]) * 1000)

    receiving = asyncio.create_task(receive())
    due = time.perf_counter()
    for number in range(count):
        due += EVERY_S
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        await send(delta(number))
    await receiving
    return taken[WARM:]


async def through_the_hub(url: str, state: Path, count: int) -> list[float]:
    machine_token = (state / "machine.token").read_text().strip()
    client_token = (state / "client.token").read_text().strip()
    where = await register(url, machine_token, "timed")
    client_url = f"{url.replace('http', 'ws')}/v1/environments/timed/status/ws"
    async with connect(where, additional_headers=bearer(machine_token), **SOCKETS) as machine:
        await machine.send('{"type":"ping"}')
        await machine.recv()
        async with connect(client_url, additional_headers=bearer(client_token), **SOCKETS) as client:
            name = unwrap(await machine.recv(decode=False)).header.client

            async def send(body: bytes) -> None:
                await machine.send(wrap(name, body), text=True)

            return await delays_ms(send, client, count)


async def straight(count: int) -> list[float]:
    """The same over one socket, without a hub."""
    arrived: asyncio.Future[ServerConnection] = asyncio.get_running_loop().create_future()

    async def hold(socket: ServerConnection) -> None:
        arrived.set_result(socket)
        await socket.wait_closed()

    async with serve(hold, "127.0.0.1", 0, compression=None, ping_interval=None) as server:
        port = server.sockets[0].getsockname()[1]
        async with connect(f"ws://127.0.0.1:{port}", **SOCKETS) as client:
            socket = await arrived

            async def send(body: bytes) -> None:
                await socket.send(body, text=True)

            return await delays_ms(send, client, count)


async def idle_machines(url: str, state: Path, pid: int, count: int) -> dict[str, float]:
    """The hub's memory before and with so many machines that only hold their sockets."""
    token = (state / "machine.token").read_text().strip()
    before = resident_mib(pid)
    slots = asyncio.Semaphore(8)
    async with contextlib.AsyncExitStack() as stack:

        async def join(number: int) -> None:
            async with slots:
                where = await register(url, token, f"idle-{number}")
                socket = await stack.enter_async_context(
                    connect(where, additional_headers=bearer(token), open_timeout=60, **SOCKETS)
                )
                await socket.send('{"type":"ping"}')
                await socket.recv()

        began = time.perf_counter()
        await asyncio.gather(*(join(number) for number in range(count)))
        joined_s = time.perf_counter() - began
        return {"before_mib": before, "with_mib": resident_mib(pid), "machines": count, "joined_s": joined_s}


def resident_mib(pid: int) -> float:
    """Proportional share of memory, as the kernel counts it; Linux only."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise ValueError("the kernel does not tell")


def percentiles(values: list[float]) -> tuple[float, float]:
    cuts = statistics.quantiles(values, n=100)
    return cuts[49], cuts[98]


async def measure(deltas: int, machines: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder)
        async with hub_process(state) as (url, pid):
            hub_p50, hub_p99 = percentiles(await through_the_hub(url, state, deltas))
            p50, p99 = percentiles(await straight(deltas))
            memory = await idle_machines(url, state, pid, machines)
    return {
        "deltas": deltas,
        "per_second": round(1 / EVERY_S),
        "through_hub_ms": {"p50": round(hub_p50, 3), "p99": round(hub_p99, 3)},
        "straight_ms": {"p50": round(p50, 3), "p99": round(p99, 3)},
        "added_ms": {"p50": round(hub_p50 - p50, 3), "p99": round(hub_p99 - p99, 3), "goal_p99": GOAL_P99_MS},
        "memory": {name: round(value, 1) for name, value in memory.items()} | {"goal_mib": GOAL_MIB},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--deltas", type=int, default=DELTAS)
    parser.add_argument("--machines", type=int, default=MACHINES)
    chosen = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The hub inherits it: each machine is a descriptor there and one here.
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536) if hard > 0 else 65536, hard))
    result = asyncio.run(measure(chosen.deltas, chosen.machines))
    print(json.dumps(result, indent=2))
    met = result["added_ms"]["p99"] <= GOAL_P99_MS and result["memory"]["with_mib"] <= GOAL_MIB
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
