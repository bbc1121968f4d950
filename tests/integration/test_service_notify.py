"""What a service manager hears from the real daemon and the real hub (ATTACKS.md R14)."""

import asyncio
import itertools
import os
import signal
import sys
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.notify_socket import NotifySocket
from support.program_client import local_client
from support.programs import ROOT, NeverHappened, World, new_world, until

QUICK = str(ROOT / "tests" / "support" / "quick_daemon.py")
HEARTBEAT_S = 2.0
WATCHDOG_S = 3.0
"""In the units: heartbeats of 20 s and WatchdogSec=30, the same proportion. Fed every half of it, so that a loaded
machine may be late by the other half."""


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with new_world("service") as made:
        yield made


@pytest.fixture
async def manager(world: World) -> AsyncIterator[NotifySocket]:
    made = NotifySocket.at(world.base / "notify")
    yield made
    made.close()


async def test_a_daemon_without_a_hub_is_ready_fed_and_says_that_it_stops(world: World) -> None:
    manager = NotifySocket.at(f"@lodger-test-{uuid.uuid4()}")
    try:
        home = world.home("a")
        environment = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "300000"}
        program = await world.daemon(home, more_environment=environment)
        await manager.word("READY=1")
        async with local_client(home.socket) as client:
            assert (await client.request({"type": "lodger_status"}))["status"]["uplink"]["state"] == "off"
        await manager.word("WATCHDOG=1", times=5)
        assert await program.stop() == 0
        await manager.word("STOPPING=1")
        assert manager.count("READY=1") == 1
        assert [word for word in manager.words if word.startswith("STATUS=")] == [
            "STATUS=Serving this machine; no hub is configured"
        ]
    finally:
        manager.close()


async def test_ready_is_said_only_once_clients_are_let_in(world: World, manager: NotifySocket) -> None:
    """A hub that takes the connection and says nothing holds up a first start, which looks for agents there."""
    home = world.home("a")
    asked = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()
        writer.close()

    hub = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = hub.sockets[0].getsockname()[1]
    token = home.lodger / "token"
    token.write_text("a-token\n")
    options = ("--hub", f"http://127.0.0.1:{port}", "--hub-token-file", str(token))
    starting = asyncio.create_task(world.daemon(home, *options, more_environment={"NOTIFY_SOCKET": manager.address}))
    await asyncio.wait_for(asked.wait(), 30)
    assert manager.words == []
    assert not home.socket.exists()
    hub.close()
    hub.close_clients() if hasattr(hub, "close_clients") else None
    program = await starting
    await manager.word("READY=1")
    assert home.socket.exists()
    assert await program.stop() == 0


async def test_a_frozen_hub_starves_the_watchdog_and_a_waking_one_feeds_it(world: World, manager: NotifySocket) -> None:
    home = world.home("a")
    hub = await world.hub(home)
    argv = [sys.executable, QUICK, str(HEARTBEAT_S), hub.first["url"], str(home.state / "hub" / "machine.token")]
    watched = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": str(int(WATCHDOG_S * 1e6))}
    program = await world.start("daemon", argv, world.environment(home, watched))
    await manager.status(lambda line: line.endswith("connected"))
    await manager.word("WATCHDOG=1", times=4)
    assert longest_gap(manager.feeds()) < WATCHDOG_S, "fed in time while all is well"
    frozen_at = asyncio.get_running_loop().time()
    os.kill(hub.pid, signal.SIGSTOP)
    try:
        await until(
            lambda: asyncio.get_running_loop().time() - manager.feeds()[-1] > WATCHDOG_S, "the unit would be restarted"
        )
        starved_at = asyncio.get_running_loop().time()
    finally:
        os.kill(hub.pid, signal.SIGCONT)
    assert starved_at - frozen_at < 5 * HEARTBEAT_S
    before = manager.count("WATCHDOG=1")
    await manager.word("WATCHDOG=1", times=before + 3)
    await manager.status(lambda line: line.endswith("connected"))
    assert await program.stop() == 0


async def test_a_daemon_whose_hub_is_away_is_fed_while_it_waits(world: World, manager: NotifySocket) -> None:
    """A planned wait is no fault of the daemon: a restart would not bring the hub back."""
    home = world.home("a")
    token = home.lodger / "token"
    token.write_text("a-token\n")
    options = ("--hub", "http://127.0.0.1:9", "--hub-token-file", str(token))
    watched = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": str(int(WATCHDOG_S * 1e6))}
    program = await world.daemon(home, *options, more_environment=watched)
    await manager.status(lambda line: "waiting" in line)
    before = manager.count("WATCHDOG=1")
    await manager.word("WATCHDOG=1", times=before + 4)
    assert longest_gap(manager.feeds()) < WATCHDOG_S
    assert await program.stop() == 0


async def test_the_hub_is_ready_fed_and_says_that_it_stops(world: World, manager: NotifySocket) -> None:
    watched = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "300000"}
    hub = await world.hub(world.home("a"), more_environment=watched)
    await manager.word("READY=1")
    await manager.word("WATCHDOG=1", times=4)
    assert await manager.status(bool) == f"Serving at {hub.first['url']}"
    os.kill(hub.pid, signal.SIGSTOP)
    await until(lambda: is_stopped(hub.pid), "the hub is frozen")
    manager.take_all()
    seen = manager.count("WATCHDOG=1")
    with pytest.raises(NeverHappened):
        await until(lambda: manager.count("WATCHDOG=1") > seen, "a frozen hub is fed", limit_s=0.5)
    os.kill(hub.pid, signal.SIGCONT)
    await hub.stop()
    await manager.word("STOPPING=1")


async def test_a_watchdog_meant_for_another_process_is_not_ours(world: World, manager: NotifySocket) -> None:
    watched = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "200000", "WATCHDOG_PID": "1"}
    program = await world.daemon(world.home("a"), more_environment=watched)
    await manager.word("READY=1")
    assert await program.stop() == 0
    await manager.word("STOPPING=1")
    assert manager.count("WATCHDOG=1") == 0


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"T"


def longest_gap(instants: list[float]) -> float:
    return max(later - earlier for earlier, later in itertools.pairwise(instants))
