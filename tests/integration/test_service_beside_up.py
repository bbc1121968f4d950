"""Service and `lodger up` beside each other: one at a time, logs that stay small, and a failed start says why."""

import json
import os
import signal
from collections.abc import AsyncIterator

import pytest

from support.programs import LODGER, World, new_world, until


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with new_world("logs") as made:
        yield made


async def test_up_logs_to_files_with_rotation(world: World) -> None:
    home = world.home("a")
    home.state.mkdir()
    log, before = home.state / "daemon.log", home.state / "daemon.log.1"
    log.write_text("x" * (5 * 1024 * 1024 - 10) + "\n")
    program = await world.start("up", [*LODGER, "up", "--json", "--port", "0"], world.environment(home), limit_s=60)
    assert program.first["type"] == "ready", program.last_words()
    hub = json.loads((home.state / "hub" / "running.json").read_text())["pid"]
    os.kill(hub, signal.SIGKILL)  # the daemon has something to tell then
    await until(before.exists, "the full log is put aside")
    await until(lambda: "uplink ended" in log.read_text(), "and a new one is begun")
    assert before.stat().st_size < 5 * 1024 * 1024
    assert log.stat().st_mode & 0o077 == 0
    assert await program.stop() == 0
    assert (home.state / "daemon.start.log").read_text() == ""


async def test_a_start_that_fails_says_why(world: World) -> None:
    home = world.home("a")
    settings = home.lodger / "config" / "settings.toml"
    settings.parent.mkdir()
    settings.write_text("[nonsense]\n")
    failed = await world.run(home, "ask", "hello", cwd=world.base)
    assert failed.code == 3
    assert "nonsense" in failed.err


async def test_up_beside_a_service_shows_what_runs_and_disturbs_nothing(world: World) -> None:
    home = world.home("a")
    hub = await world.hub(home)
    record = home.state / "hub" / "running.json"
    before = record.read_text()
    token = str(home.state / "hub" / "machine.token")
    await world.daemon(home, "--hub", hub.first["url"], "--hub-token-file", token)
    shown = (await world.run(home, "up", "--json", cwd=world.base)).ok().json
    assert (shown["type"], shown["hub_url"]) == ("ready", hub.first["url"])
    assert record.read_text() == before, "commands here still find the hub that runs"
    said = (await world.run(home, "up", cwd=world.base)).ok()
    assert "was up already" in said.out
    assert "No `lodger up` started it" in said.out
    assert "another terminal" not in said.out


async def test_a_second_up_tells_of_the_first_and_both_have_logged_that_they_are_up(world: World) -> None:
    home = world.home("a")
    first = await world.start("up", [*LODGER, "up", "--json", "--port", "0"], world.environment(home), limit_s=60)
    said = (await world.run(home, "up", cwd=world.base)).ok()
    assert "was up already" in said.out
    assert "Ctrl-C where `lodger up` runs" in said.out
    assert "lodger service" not in said.out
    shown = (await world.run(home, "logs", "--json", cwd=world.base)).ok()
    lines = [json.loads(line) for line in shown.out.splitlines()]
    assert {"hub", "daemon"} <= {line["part"] for line in lines if line["logger"] == "lodger_cli.serve"}
    assert await first.stop() == 0


async def test_up_beside_a_daemon_without_a_hub_says_what_is_in_the_way(world: World) -> None:
    home = world.home("a")
    await world.daemon(home)
    refused = await world.run(home, "up", cwd=world.base)
    assert refused.code == 1
    assert "a daemon runs here already" in refused.err
    assert not (home.state / "hub" / "running.json").exists()
