"""A stop by the service manager while a command runs: quick, in good order, and the command is not lost."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import pytest

from support.notify_socket import NotifySocket
from support.patience import LIMIT_S
from support.program_client import Client, bash, local_client, open_conversation, script
from support.programs import Endpoint, Home, World, new_world, until

STOP_LIMIT_S = 10.0
"""A third of the unit's TimeoutStopSec."""


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with new_world("stop") as made:
        yield made


@pytest.mark.parametrize("hub_is", ["absent", "frozen"])
async def test_sigterm_leaves_the_running_call_to_its_box_and_the_next_daemon_collects_it(
    world: World, hub_is: str
) -> None:
    """With the hub frozen it is what the watchdog of R14 brings about."""
    manager = NotifySocket.at(world.base / "notify")
    home, endpoint = world.home("a"), await world.endpoint()
    hub = await world.hub(home) if hub_is == "frozen" else None
    token = str(home.state / "hub" / "machine.token")
    options = ("--hub", hub.first["url"], "--hub-token-file", token) if hub else ()
    program = await world.daemon(home, *options, endpoint=endpoint, more_environment={"NOTIFY_SOCKET": manager.address})
    command = (
        "echo begun >> marker.txt; while [ ! -e gate ]; do sleep 0.05; done; echo ended >> marker.txt; echo collec''ted"
    )
    async with local_client(home.socket) as client:
        conversation = await open_conversation(client, cwd=home.workspace)
        await conversation.say(script({"calls": [bash(command)]}, {"text": "done"}))
        await until(lambda: home.marks() == ["begun"], "the command runs")
        if hub is not None:
            os.kill(hub.pid, signal.SIGSTOP)
        boxes = working(home)
        began = asyncio.get_running_loop().time()
        assert await program.stop(STOP_LIMIT_S) == 0
        took_s = asyncio.get_running_loop().time() - began
    await manager.word("STOPPING=1")
    manager.close()
    print(f"stopped in {took_s:.2f} s with a command running and the hub {hub_is}")
    assert boxes and working(home) == boxes, "the box outlives the daemon"
    if hub is None:
        told = await world.run(home, "status")
        assert told.code != 0
        assert f"in {home.workspace} goes on without it" in told.err
    (home.workspace / "gate").touch()
    await until(lambda: home.marks() == ["begun", "ended"], "the command goes on without a daemon")
    # Still frozen: the next daemon must not wait for it.
    await world.daemon(home, *options, endpoint=endpoint)
    await endpoint_hears(endpoint, "collected")
    assert home.marks() == ["begun", "ended"], "nothing ran twice"
    if hub is not None:
        os.kill(hub.pid, signal.SIGCONT)


async def test_a_stop_leaves_no_box_in_which_nothing_runs(world: World) -> None:
    home, endpoint = world.home("a"), await world.endpoint()
    program = await world.daemon(home, endpoint=endpoint)
    async with local_client(home.socket) as client:
        conversation = await open_conversation(client, cwd=home.workspace)
        await conversation.turn(script({"calls": [bash("true")]}, {"text": "done"}))
        assert working(home)
        agent = conversation.runtime["agent_id"]
        await client.request({"type": "lodger_memory_settled", "agent_id": agent, "limit_s": 30})
        # What came to memory with the turn is looked at in that box too.
        await until_calls_end(client)
    assert await program.stop(STOP_LIMIT_S) == 0
    assert home.boxes() == ()
    assert "goes on" not in (await world.run(home, "status")).err


async def until_calls_end(client: Client) -> None:
    async with asyncio.timeout(LIMIT_S):
        while True:
            told = await client.request({"type": "lodger_status"})
            if not any(box["running_calls"] for box in told["status"]["boxes"]):
                return


def working(home: Home) -> set[int]:
    """The boxes on the workspace."""
    return {box.record.runner_pid for box in home.boxes() if box.record.key.workspace == str(home.workspace)}


async def endpoint_hears(endpoint: Endpoint, word: str) -> None:
    """Wait until the model is told a result."""
    for _ in range(600):
        if word in str((await endpoint.requests())[-1]["body"]["messages"][-1]):
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"the model never heard {word!r}")
