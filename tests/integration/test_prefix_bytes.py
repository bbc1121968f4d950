"""What the model's provider receives, byte by byte: each request begins with the whole of the one before.

A prefix that changes is paid for anew at every provider with a prompt cache, and read anew by every local model. Real
daemon, real boxes, real git for the memory, a real endpoint over HTTP.
"""

import json
import sqlite3
from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.program_client import Conversation, bash, local_client, open_conversation, remember, script
from support.programs import Endpoint, Home, World, new_world

pytestmark = pytest.mark.timeout(300)

STEPS = 10
TURNS = 20
FACTS = (2, 7, 12, 17)
"""Before these turns another conversation of the agent adds to its memory."""


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with new_world("prefix") as made:
        yield made


def array_bytes(raw: str, name: str) -> str:
    """The text of an array of the body, as it came over the wire, without its closing bracket."""
    start = raw.index(f'"{name}":') + len(name) + 3
    start = raw.index("[", start)
    _, end = json.JSONDecoder().raw_decode(raw, start)
    return raw[start : end - 1]


def assert_each_begins_with_the_last(requests: list[dict[str, Any]]) -> None:
    before = requests[0]["raw"]
    for request in requests[1:]:
        raw = request["raw"]
        head = before.index(array_bytes(before, "messages"))
        assert raw[:head] == before[:head], f"request {request['number']}: what comes before the messages changed"
        assert array_bytes(raw, "messages").startswith(array_bytes(before, "messages")), changed_at(before, raw)
        assert array_bytes(raw, "tools") == array_bytes(before, "tools"), f"request {request['number']}: tools"
        before = raw


def changed_at(before: str, raw: str) -> str:
    """Where two bodies part, for the failure's words."""
    old, new = array_bytes(before, "messages"), array_bytes(raw, "messages")
    place = next((index for index, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    return f"at {place}: {old[place - 80 : place + 80]!r} became {new[place - 80 : place + 80]!r}"


def system_prompt(request: dict[str, Any]) -> str:
    first = request["body"]["messages"][0]
    assert first["role"] == "system"
    return str(first["content"])


def reminders(home: Home, kind: str) -> list[str]:
    """What the model was told, as the transcript keeps it."""
    with sqlite3.connect(f"file:{home.database}?mode=ro", uri=True, timeout=10) as database:
        rows = database.execute("SELECT content FROM messages WHERE kind = 'user' ORDER BY number").fetchall()
    told = [reminder for (content,) in rows for reminder in json.loads(content).get("reminders", [])]
    return [reminder["text"] for reminder in told if reminder["kind"] == kind]


async def asked_in(conversation: Conversation, endpoint: Endpoint, text: str) -> list[dict[str, Any]]:
    """The requests of one turn that ends well."""
    before = len(await endpoint.requests())
    turn = await conversation.turn(text)
    assert turn.finished["stop_reason"] == "end_turn", turn.finished
    return (await endpoint.requests())[before:]


async def test_ten_steps_of_a_turn_with_commits_to_the_memory_between_them(world: World) -> None:
    home, endpoint = world.home("a"), await world.endpoint()
    await world.daemon(home, endpoint=endpoint)
    async with local_client(home.socket) as client:
        conversation = await open_conversation(client, cwd=home.workspace)
        calls = [bash(f"echo step {number}") for number in range(STEPS)]
        calls[2], calls[6] = remember("harbour", "Ingrid."), remember("lighthouse", "It is red.")
        steps: list[dict[str, Any]] = [{"text": f"now {number}", "calls": [call]} for number, call in enumerate(calls)]
        requests = await asked_in(conversation, endpoint, "Go. " + script(*steps, {"text": "done"}))
        assert len(requests) == STEPS + 1
        assert "1 new commit published" in requests[3]["raw"]
        assert_each_begins_with_the_last(requests)
        after = await asked_in(conversation, endpoint, "And now?")
        assert_each_begins_with_the_last([*requests, *after])
        assert "what lighthouse is about" not in system_prompt(after[0])
        assert reminders(home, "memory_update") == [], "what the agent wrote here it knows"


async def test_twenty_turns_over_a_restart_with_commits_to_the_memory_between_them(world: World) -> None:
    home, endpoint = world.home("a"), await world.endpoint()
    requests: list[dict[str, Any]] = []
    for half in range(2):
        daemon = await world.daemon(home, endpoint=endpoint)
        async with local_client(home.socket) as client:
            conversation = await open_conversation(client, cwd=home.workspace)
            elsewhere = await open_conversation(client, cwd=home.workspace, new=True)
            for number in range(half * TURNS // 2, (half + 1) * TURNS // 2):
                if number in FACTS:
                    call = remember(f"fact{number}", f"Fact {number}.")
                    await asked_in(elsewhere, endpoint, script({"calls": [call]}, {"text": "kept"}))
                text = f"Turn {number}: ünïcode 茶 {'and' if number % 2 else 'or'} so on. "
                steps = [{"calls": [bash(f"echo {number}")]}] if number % 4 == 1 else []
                requests += await asked_in(conversation, endpoint, text + script(*steps, {"text": f"yes {number} 茶"}))
        assert await daemon.stop() == 0
    assert len(requests) == TURNS + 5
    assert_each_begins_with_the_last(requests)
    assert len({system_prompt(request) for request in requests}) == 1
    updates = reminders(home, "memory_update")
    assert [[f"fact{number}" in update for number in FACTS] for update in updates] == [
        [number == told for number in FACTS] for told in FACTS
    ]
    for update in updates:
        assert sum(json.dumps(update, ensure_ascii=False)[1:-1] in request["raw"] for request in requests)
    assert len(set(reminders(home, "session"))) == 1


async def test_a_new_conversation_knows_by_its_prompt_what_an_old_one_was_told(world: World) -> None:
    home, endpoint = world.home("a"), await world.endpoint()
    await world.daemon(home, endpoint=endpoint)
    async with local_client(home.socket) as client:
        conversation = await open_conversation(client, cwd=home.workspace)
        kept = script({"calls": [remember("harbour", "Its master is Ingrid.")]}, {"text": "kept"})
        old = await asked_in(conversation, endpoint, kept)
        fresh = await open_conversation(client, cwd=home.workspace, new=True)
        new = await asked_in(fresh, endpoint, "Who?")
        assert "Its master is Ingrid." not in system_prompt(old[-1])
        assert "Its master is Ingrid." in system_prompt(new[0])
        recompiled = await client.request(
            {
                "type": "conversation_recompile",
                "conversation_id": "default",
                "body": {"agent_id": fresh.runtime["agent_id"]},
            }
        )
        assert "Its master is Ingrid." in recompiled["result"]
        again = await asked_in(conversation, endpoint, "And you?")
        assert system_prompt(again[0]) == recompiled["result"]
