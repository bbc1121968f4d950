"""A limit of spend with real processes: it stops a turn with a question that survives a kill, and a word raises it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.program_client import Client, bash, local_client, open_conversation, script
from support.programs import Home, World, new_world

pytestmark = pytest.mark.timeout(120)

STEP_TOKENS = 107
"""What the scripted endpoint reports for each step: 100 in, 64 of them cached, and 7 out."""
STEP_USD = (36 * 2 + 64 * 0.5 + 7 * 10) / 1e6
SETTINGS = """
[spend.turn]
tokens = 200
[spend.day]
usd = 5
[spend.prices."openai/scripted"]
input = 2
output = 10
cached_input = 0.5
"""


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with new_world("spend") as made:
        yield made


def write_settings(home: Home, text: str) -> None:
    (home.lodger / "config").mkdir(mode=0o700, exist_ok=True)
    (home.lodger / "config/settings.toml").write_text(text)


async def spend_of(client: Client) -> dict[str, Any]:
    answer = await client.request({"type": "lodger_status"})
    shown: dict[str, Any] = answer["status"]["spend"]
    return shown


async def test_a_limit_stops_a_turn_until_a_person_says_go_on(world: World) -> None:
    home, endpoint = world.home("a"), await world.endpoint()
    write_settings(home, SETTINGS)
    daemon = await world.daemon(home, endpoint=endpoint)
    steps = [{"calls": [bash(f"echo {n}")]} for n in (1, 2)]
    async with local_client(home.socket) as client:
        conversation = await open_conversation(client, cwd=home.workspace)
        await conversation.say("Do it. " + script(*steps, {"text": "done"}))
        question = await conversation.question()
        assert "214 tokens" in str(question)
        assert len(await endpoint.requests()) == 2
        before = await spend_of(client)
    assert before["today"]["tokens"] == 2 * STEP_TOKENS
    assert before["today"]["usd"] == pytest.approx(2 * STEP_USD)
    assert before["limits"] == {"turn": {"tokens": 200, "usd": None}, "day": {"tokens": None, "usd": 5.0}}

    await daemon.killed()
    await world.daemon(home, endpoint=endpoint)
    async with local_client(home.socket) as client:
        conversation = await open_conversation(client, cwd=home.workspace)
        again = await conversation.question()
        assert (await spend_of(client))["today"] == before["today"]
        assert len(await endpoint.requests()) == 2
        after = len(client.frames)
        await conversation.answer(again, "allow")
        finished = await conversation.finished(after)
        assert finished["stop_reason"] == "end_turn", finished
        assert "".join(conversation.fragments(after)) == "done"
        shown = await spend_of(client)
    assert shown["today"]["steps"] == 3
    assert shown["today"]["usd"] == pytest.approx(3 * STEP_USD)
    agent = conversation.runtime["agent_id"]
    assert shown["agents"][agent] == shown["today"]


async def test_a_person_who_says_no_ends_the_turn(world: World) -> None:
    home, endpoint = world.home("a"), await world.endpoint()
    write_settings(home, SETTINGS.replace("200", "100"))
    await world.daemon(home, endpoint=endpoint)
    async with local_client(home.socket) as client:
        conversation = await open_conversation(client, cwd=home.workspace)
        await conversation.say("Do it. " + script({"calls": [bash("echo 1")]}, {"text": "done"}))
        question = await conversation.question()
        await conversation.answer(question, "deny", "enough")
        finished = await conversation.finished()
        assert finished["stop_reason"] != "end_turn", finished
        assert len(await endpoint.requests()) == 1
        # The limit was of that turn; the next one has its own.
        turn = await conversation.turn("And now? " + script({"text": "fresh"}))
        assert turn.text == "fresh"


async def test_a_model_without_a_price_is_asked_for_when_money_has_a_limit(world: World) -> None:
    home, endpoint = world.home("a"), await world.endpoint()
    write_settings(home, "[spend.day]\nusd = 1\n")
    await world.daemon(home, endpoint=endpoint)
    async with local_client(home.socket) as client:
        conversation = await open_conversation(client, cwd=home.workspace)
        await conversation.say("Go. " + script({"text": "went"}))
        question = await conversation.question()
        assert "price of openai/scripted is not known" in str(question)
        assert await endpoint.requests() == []
        await conversation.answer(question, "allow")
        assert (await conversation.finished())["stop_reason"] == "end_turn"
        shown = await spend_of(client)
    assert (shown["today"]["usd"], shown["today"]["unpriced_steps"]) == (None, 1)
    assert shown["unpriced_models"] == ["openai/scripted"]
