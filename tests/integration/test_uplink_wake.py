"""R6 and R7 with real processes: a daemon that is stopped and goes on, and a path that dies without a word."""

import asyncio
import contextlib
import json
import signal
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from support.hub_rig import Proxy
from support.patience import LIMIT_S
from support.programs import Home, Program, World, new_world, until

WAKE_LIMIT_S = 5.0
HALF_OPEN_LIMIT_S = 90.0


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with new_world("wake") as made:
        yield made


@dataclass
class Linked:
    """A daemon whose way to its hub leads through a proxy of the test's."""

    daemon: Program
    proxy: Proxy
    hub_url: str
    client_token: str

    async def shown(self) -> dict[str, Any]:
        """The machine as the hub shows it."""

        def ask() -> Any:
            headers = {"Authorization": f"Bearer {self.client_token}"}
            request = urllib.request.Request(f"{self.hub_url}/v1/environments", headers=headers)
            with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
                return json.loads(answer.read())["connections"]

        (machine,) = await asyncio.to_thread(ask) or [{"connectionId": None, "connectedAt": None}]
        assert isinstance(machine, dict)
        return machine

    async def connected(self) -> dict[str, Any]:
        async with asyncio.timeout(30):
            while (machine := await self.shown())["connectionId"] is None:  # noqa: ASYNC110 - asked over HTTP
                await asyncio.sleep(0.05)
        return machine

    async def stopped_for(self, stop_s: float) -> float:
        """Stop the daemon, let it go on; the moment at which it went on."""
        self.daemon.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(stop_s)  # the time itself is what is tested
        self.daemon.process.send_signal(signal.SIGCONT)
        return asyncio.get_running_loop().time()

    def first_after(self, moment: float) -> float | None:
        """Seconds from a moment to the first bytes of the daemon behind it."""
        return next((at - moment for _, at in self.proxy.heard if at > moment), None)


@contextlib.asynccontextmanager
async def linked(world: World) -> AsyncIterator[Linked]:
    a: Home = world.home("a")
    hub = await world.hub(a)
    url = str(hub.first["url"])
    async with Proxy(int(url.rpartition(":")[2])) as proxy:
        options = ("--hub", f"http://127.0.0.1:{proxy.port}", "--hub-token-file", str(a.state / "hub/machine.token"))
        daemon = await world.daemon(a, *options, endpoint=await world.endpoint())
        link = Linked(daemon, proxy, url, (a.state / "hub" / "client.token").read_text().strip())
        await link.connected()
        yield link


@pytest.mark.timeout(120)
async def test_r7_after_a_stop_of_5_s_the_first_frame_comes_within_5_s(world: World) -> None:
    async with linked(world) as link:
        before = await link.connected()
        connections = link.proxy.connections
        # Its next planned probe lies 20 s behind the start of the link, so what comes after the stop is owed to it.
        woke_at = await link.stopped_for(5.0)
        await until(lambda: link.first_after(woke_at) is not None, "a frame after the wake", 30)
        took_s = link.first_after(woke_at)
        assert took_s is not None
        assert took_s <= WAKE_LIMIT_S
        after = await link.connected()
        assert (after["connectedAt"], link.proxy.connections) == (before["connectedAt"], connections)


@pytest.mark.timeout(120)
async def test_r7_a_stop_during_which_the_hub_was_lost_is_followed_by_a_dial(world: World) -> None:
    """The path dies while the daemon is stopped, and says so: it is dialled anew within 5 s of waking."""
    async with linked(world) as link:
        connections = link.proxy.connections
        link.daemon.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(2.0)  # the time itself is what is tested
        link.proxy.cut()
        await asyncio.sleep(3.0)  # as above
        link.daemon.process.send_signal(signal.SIGCONT)
        woke_at = asyncio.get_running_loop().time()
        await until(lambda: link.proxy.connections > connections, "a new connection", 30)
        await until(lambda: link.first_after(woke_at) is not None, "a frame after the wake", 30)
        assert (link.first_after(woke_at) or 0.0) <= WAKE_LIMIT_S
        await link.connected()


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("swallowed", [False, True], ids=["path lives", "path died"])
async def test_r7_after_a_stop_of_10_minutes(world: World, swallowed: bool) -> None:
    async with linked(world) as link:
        connections = link.proxy.connections
        if swallowed:
            link.proxy.swallow()
        woke_at = await link.stopped_for(600.0)
        await until(lambda: link.first_after(woke_at) is not None, "a frame after the wake", 60)
        assert (link.first_after(woke_at) or 0.0) <= WAKE_LIMIT_S
        # The hub has given up a machine that was silent for five minutes; a dead path is known after two more probes.
        await until(lambda: link.proxy.connections > connections, "a new connection", 60)
        assert (asyncio.get_running_loop().time() - woke_at) <= 2 * WAKE_LIMIT_S
        await link.connected()


@pytest.mark.soak
@pytest.mark.timeout(300)
async def test_r6_a_path_that_swallows_everything_is_left_within_90_s(world: World) -> None:
    async with linked(world) as link:
        connections, began = link.proxy.connections, asyncio.get_running_loop().time()
        link.proxy.swallow()
        await until(lambda: link.proxy.connections > connections, "a new connection", 2 * HALF_OPEN_LIMIT_S)
        assert asyncio.get_running_loop().time() - began <= HALF_OPEN_LIMIT_S
        await link.connected()
