"""`lodger status` and `lodger doctor` beside a real hub, daemon, model endpoint and box: true facts, with their age."""

import re
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.program_client import bash, local_client, open_conversation, script
from support.programs import ROOT, Home, World, free_port, new_world


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with new_world("status") as made:
        yield made


async def status(world: World, home: Home) -> dict[str, Any]:
    return dict((await world.run(home, "status", "--json")).ok().json)


def documented(section: str) -> dict[str, str]:
    """The rows of a table in docs/status.md, by their key."""
    text = (ROOT / "docs" / "status.md").read_text().split(f"## `{section}`")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([a-z_]+)` \| (.+) \|$", text, re.MULTILINE)
    return dict(rows)


def keys_of(value: Any) -> set[str]:
    """Of an object, or of the objects in a list."""
    objects = value if isinstance(value, list) else [value]
    return {key for one in objects if isinstance(one, dict) for key in one}


def untold(facts: dict[str, Any]) -> list[str]:
    """What a person who writes a program would not find on the page."""
    rows = documented("lodger status --json")
    return [
        f"{key}.{inner}"
        for key, value in facts.items()
        for inner in keys_of(value)
        if f"`{inner}`" not in rows.get(key, "")
    ]


async def doctor(world: World, home: Home, code: int = 0) -> dict[str, dict[str, Any]]:
    """By name; of a name with several findings the last."""
    ran = await world.run(home, "doctor", "--json")
    assert ran.code == code, ran
    rows = documented("lodger doctor --json")
    for finding in ran.json:
        assert set(finding) == set(rows)
        assert f"`{finding['name']}`" in rows["name"]
    return {finding["name"]: finding for finding in ran.json}


async def test_what_waits_is_told_with_its_conversation_and_since_when(world: World) -> None:
    home, endpoint = world.home("a"), await world.endpoint()
    began = time.time()
    await world.daemon(home, endpoint=endpoint)
    async with local_client(home.socket) as client:
        conversation = await open_conversation(client, cwd=home.workspace, mode="strict")
        agent = conversation.runtime["agent_id"]
        await conversation.say(script({"calls": [bash("echo asked")]}, {"text": "done"}))
        question = await conversation.question()
        await conversation.say("and then?", delivery="turn_end")
        facts = await status(world, home)
        [asked] = facts["questions"]["open"]
        assert facts["questions"]["pending"] == 1
        assert (asked["agent_id"], asked["conversation_id"], asked["tool"]) == (agent, "default", "Bash")
        assert began < asked["asked_at"] <= facts["at"] < asked["expires_at"]
        [queue] = facts["queues"]
        assert (queue["agent_id"], queue["conversation_id"], queue["waiting"], queue["parked"]) == (
            agent, "default", 1, 0,
        )  # fmt: skip
        assert began < queue["turn_since"] <= queue["oldest_at"] <= facts["at"]
        [used] = facts["model"]["used"]
        assert began < used["succeeded_at"] <= facts["at"]
        assert used["failed_at"] is None
        assert facts["disk"]["store_bytes"] > 0
        assert facts["disk"]["free_bytes"] > 0
        assert facts["backend"]["store"] == str(home.database)
        assert facts["clock"] == {"ahead_of_hub_s": None, "compared_at": None, "jumps": []}
        assert set(facts) == set(documented("lodger status --json"))
        assert untold(facts) == []
        told = (await world.run(home, "status")).ok().out
        assert f"Bash in default of {agent}, asked" in told
        await conversation.answer(question, "deny", "not now")
        await conversation.finished()
    assert (await doctor(world, home))["model"]["verdict"] == "ok"


async def test_a_failing_model_and_a_lost_hub_are_told_with_what_comes_next(world: World) -> None:
    home, endpoint, port = world.home("a"), await world.endpoint(), free_port()
    hub = await world.hub(home, port=port)
    token = str(home.state / "hub" / "machine.token")
    await world.daemon(home, "--hub", f"http://127.0.0.1:{port}", "--hub-token-file", token, endpoint=endpoint)
    for _ in range(200):
        facts = await status(world, home)
        if facts["uplink"]["state"] == "connected":
            break
    assert abs(facts["clock"]["ahead_of_hub_s"]) < 15
    assert facts["clock"]["compared_at"] <= facts["at"]
    async with local_client(home.socket) as client:
        conversation = await open_conversation(client, cwd=home.workspace)
        fault = {"status": 401, "type": "authentication_error", "message": "no such key"}
        turn = await conversation.turn(script({"fault": fault}))
        assert turn
    found = (await doctor(world, home))["model"]
    assert (found["problem"], found["command"]) == ("model-failing", "lodger connect openai")
    assert "no such key" in found["found"]
    await hub.killed()
    for _ in range(200):
        facts = await status(world, home)
        if facts["uplink"]["state"] == "waiting":
            break
    uplink = facts["uplink"]
    assert uplink["next_attempt_at"] > uplink["since"]
    assert uplink["failures"] >= 1
    assert uplink["reason"]
    assert uplink["last_contact"] <= facts["at"]
    away = (await doctor(world, home))["hub"]
    assert (away["verdict"], away["problem"]) == ("warning", "hub-away")


async def test_without_a_daemon_doctor_names_the_command_and_status_ends_with_3(world: World) -> None:
    home = world.home("a")
    found = (await doctor(world, home))["daemon"]
    assert (found["problem"], found["command"]) == ("no-daemon", "lodger up")
    ran = await world.run(home, "status", "--json")
    assert (ran.code, ran.json["type"]) == (3, "error")


async def test_settings_that_cannot_be_read_are_wrong_and_the_key_is_named(world: World) -> None:
    home = world.home("a")
    file = home.lodger / "config" / "settings.toml"
    file.parent.mkdir()
    file.write_text("[machine]\nnickname = 'x'\n")
    found = (await doctor(world, home, code=1))["settings"]
    assert (found["verdict"], found["problem"]) == ("wrong", "settings-unreadable")
    assert "machine.nickname" in found["found"]
    assert found["command"] == f"mv {file} {file}.old"
