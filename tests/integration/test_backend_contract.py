"""One conversation, whoever serves the model: the local backend over OpenAI's, Anthropic's and Ollama's dialect.

The same script is played in a conversation of its own for each dialect, with a real daemon, real boxes and endpoints
over HTTP. What the person sees afterwards is the same, and every request on the way was one that its provider accepts.
"""

import base64
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.program_client import Conversation, bash, local_client, open_conversation, script
from support.programs import Endpoint, Home, World, new_world

pytestmark = pytest.mark.timeout(300)

DIALECTS = {"openai": "length", "anthropic": "max_tokens", "ollama": "length"}
"""Each with its word for an answer that was cut at the token limit."""
ANTHROPIC_ID = re.compile("[a-zA-Z0-9_-]+")
SUMMARY = "They tried commands."
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 60).decode()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with new_world("contract") as made:
        yield made


def configure(home: Home, plain: Endpoint, ollama: Endpoint) -> None:
    addresses = {"openai": f"{plain.url}/v1", "anthropic": plain.url, "ollama": f"{ollama.url}/v1"}
    folder = home.lodger / "config"
    folder.mkdir(mode=0o700, exist_ok=True)
    sections = [
        f'[providers.{name}]\nbase_url = "{address}"\ndialect = "{"anthropic" if name == "anthropic" else "openai"}"\n'
        f'models = ["scripted"]\n'
        for name, address in addresses.items()
    ]
    (folder / "settings.toml").write_text("\n".join(sections))


async def on(conversation: Conversation, handle: str) -> None:
    chosen = await conversation.client.request(
        {"type": "update_model", "runtime": conversation.runtime, "payload": {"model_handle": handle}}
    )
    assert chosen["success"], chosen


async def play(conversation: Conversation, cut: str) -> list[str]:
    """The whole script; the stop reasons of its turns."""
    steps = [
        {"reasoning": "first look", "text": "I look. ", "calls": [bash("echo one; exit 3"), bash("echo two")]},
        {"text": "Seen."},
    ]
    cut_call = {"calls": [{"name": "Bash", "arguments": '{"command": "echo never-'}], "finish": cut}
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    twice = [{"calls": [bash(f"echo {word}") | {"id": "same"}]} for word in "ab"]
    turns: list[Any] = [
        "Go. " + script(*steps),
        "Again. " + script(cut_call, {"text": "Shorter then."}),
        "Two of one name. " + script(*twice),
        [{"type": "text", "text": "Look. " + script({"text": "A picture."})}, picture],
        "Cut me. " + script({"text": "This goes on and", "finish": cut}),
    ]
    outcomes = []
    for content in turns:
        turn = await conversation.turn(content)
        outcomes.append(turn.finished["stop_reason"])
    key = {"conversation_id": conversation.runtime["conversation_id"], "body": {"mode": "all"}}
    compacted = await conversation.client.request({"type": "conversation_compact", **key})
    assert compacted["success"], compacted
    outcomes.append((await conversation.turn("After it. " + script({"text": "Fine."}))).finished["stop_reason"])
    return outcomes


async def seen(conversation: Conversation) -> list[dict[str, Any]]:
    """What a person is shown, without ids and dates."""
    query = {"limit": 200, "order": "asc", "agent_id": conversation.runtime["agent_id"]}
    listed = await conversation.client.request(
        {
            "type": "conversation_messages_list",
            "conversation_id": conversation.runtime["conversation_id"],
            "query": query,
        }
    )
    return [
        {
            "type": message["message_type"],
            "text": message.get("content") or message.get("reasoning") or message.get("summary", "").split("\n\n")[:2],
            "calls": [(call["name"], call["arguments"]) for call in message.get("tool_calls", [])],
            "result": (message.get("status"), message.get("tool_return")),
        }
        for message in listed["messages"]
    ]


def check_openai(body: dict[str, Any]) -> None:
    waiting: list[str] = []
    ids: list[str] = []
    for number, message in enumerate(body["messages"]):
        assert (message["role"] == "system") == (number == 0)
        if message["role"] == "tool":
            assert waiting.pop(0) == message["tool_call_id"]
            continue
        assert waiting == []
        for call in message.get("tool_calls", []):
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
            waiting.append(call["id"])
            ids.append(call["id"])
    assert waiting == []
    assert len(ids) == len(set(ids))


def check_anthropic(body: dict[str, Any]) -> None:
    roles = [message["role"] for message in body["messages"]]
    assert roles == ["user" if number % 2 == 0 else "assistant" for number in range(len(roles))]
    waiting: list[str] = []
    for message in body["messages"]:
        blocks = message["content"]
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert results == waiting
        assert [block["type"] for block in blocks[: len(results)]] == ["tool_result"] * len(results)
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
        assert all(ANTHROPIC_ID.fullmatch(one) for one in waiting), waiting
        assert all(isinstance(block["input"], dict) for block in blocks if block["type"] == "tool_use")
    assert waiting == []


async def check_requests(*endpoints: Endpoint) -> int:
    checked = 0
    for endpoint in endpoints:
        for request in await endpoint.requests():
            assert request["state"] == "answered", request["state"]
            (check_anthropic if request["path"] == "/v1/messages" else check_openai)(request["body"])
            checked += 1
    return checked


async def test_a_conversation_is_the_same_over_every_dialect(world: World) -> None:
    home = world.home("a")
    plain = await world.endpoint("--without-tools", SUMMARY)
    ollama = await world.endpoint("--ollama", "--without-tools", SUMMARY)
    configure(home, plain, ollama)
    await world.daemon(home, more_environment={"OPENAI_API_KEY": "x", "ANTHROPIC_API_KEY": "x"})
    shown: dict[str, list[dict[str, Any]]] = {}
    async with local_client(home.socket) as client:
        for dialect, cut in DIALECTS.items():
            conversation = await open_conversation(client, cwd=home.workspace, new=True)
            await on(conversation, f"{dialect}/scripted")
            outcomes = await play(conversation, cut)
            assert outcomes == [*["end_turn"] * 4, "max_tokens_exceeded", "end_turn"], (dialect, outcomes)
            said = await seen(conversation)
            shown[dialect] = [one | {"text": str(one["text"]).replace(f'"{cut}"', '"cut"')} for one in said]
    assert await check_requests(plain, ollama) >= 3 * 9
    results = [one["result"] for one in shown["openai"] if one["type"] == "tool_return_message"]
    assert [status for status, _ in results] == ["error", "success", "error", "success", "success"]
    assert "cut off" in results[2][1]
    assert "never-" not in str([text for _, text in results])
    for dialect in ("anthropic", "ollama"):
        assert shown[dialect] == shown["openai"], dialect


async def test_a_conversation_goes_on_when_its_model_changes_to_another_dialect(world: World) -> None:
    home = world.home("a")
    plain, ollama = await world.endpoint(), await world.endpoint("--ollama")
    configure(home, plain, ollama)
    await world.daemon(home, more_environment={"OPENAI_API_KEY": "x", "ANTHROPIC_API_KEY": "x"})
    async with local_client(home.socket) as client:
        conversation = await open_conversation(client, cwd=home.workspace)
        for number, dialect in enumerate([*DIALECTS, *reversed(DIALECTS)]):
            await on(conversation, f"{dialect}/scripted")
            call = bash(f"echo {number}") | {"id": "functions.Bash:0"}
            turn = await conversation.turn(script({"reasoning": "hm", "calls": [call]}, {"text": f"said {number}"}))
            assert (turn.finished["stop_reason"], turn.text) == ("end_turn", f"said {number}")
        agent_id = conversation.runtime["agent_id"]
        exported = await client.request({"type": "lodger_export", "agent_id": agent_id})
        assert exported["done"], exported
        assert len(exported["data"].splitlines()) == 3 + 6 * 4 + 1
        imported = await client.request({"type": "lodger_import", "data": exported["data"], "done": True})
        assert (imported["success"], imported["messages"]) == (True, 6 * 4), imported
        assert imported["agent_id"] != agent_id
        query = {"agent_id": imported["agent_id"], "limit": 200}
        copy = await client.request(
            {"type": "conversation_messages_list", "conversation_id": "default", "query": query}
        )
        assert copy["messages"][0]["content"] == [{"type": "text", "text": "said 5"}]
    assert await check_requests(plain, ollama) == 12
