"""A window of 8,192 tokens against instructions that take up most of it: real daemon, real boxes, a real endpoint that
refuses what does not fit and counts what does.

Turns end with a clear outcome or succeed after compaction. No request asks for an answer of a token, and none is
repeated for ever.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.program_client import Conversation, bash, local_client, open_conversation, script
from support.programs import Endpoint, Home, World, new_world

pytestmark = pytest.mark.timeout(300)

WINDOW = 8_192
SUMMARY = "They talked about the harbour."
OVERFLOW = "context_window_overflow_in_system_prompt"
SMALLEST_ANSWER = 512
SMALLEST_SUMMARY = 200
TIGHT = "Be kind to everybody. " * 740
"""About 4,000 tokens: with tools and house rules some 6,000, and 1,600 are kept for the answer."""
TOO_MUCH = "Be kind to everybody. " * 2_000


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with new_world("small") as made:
        yield made


async def small_endpoint(world: World) -> Endpoint:
    return await world.endpoint("--window", str(WINDOW), "--hold-window", "--without-tools", SUMMARY)


def believe(home: Home, endpoint: Endpoint, window: int) -> None:
    """What the person's settings say of the model."""
    folder = home.lodger / "config"
    folder.mkdir(mode=0o700, exist_ok=True)
    provider = f'[providers.openai]\nbase_url = "{endpoint.url}/v1"\ncontext_window = {window}\n'
    (folder / "settings.toml").write_text(provider)


async def agent_with(client: Any, home: Home, instructions: str) -> Conversation:
    body = {"name": "Tester", "system": instructions}
    return await open_conversation(client, cwd=home.workspace, create_agent={"body": body})


def assert_every_answer_has_room(requests: list[dict[str, Any]]) -> None:
    for request in requests:
        limit = request["body"].get("max_tokens") or request["body"].get("max_completion_tokens")
        smallest = SMALLEST_ANSWER if request["body"].get("tools") else SMALLEST_SUMMARY
        assert limit is None or limit >= smallest, (request["number"], limit)


async def test_instructions_that_fill_the_window_end_the_turn_before_anything_is_sent(world: World) -> None:
    home, endpoint = world.home("a"), await small_endpoint(world)
    believe(home, endpoint, WINDOW)
    await world.daemon(home, endpoint=endpoint)
    async with local_client(home.socket) as client:
        conversation = await agent_with(client, home, TOO_MUCH)
        turn = await conversation.turn("hello")
        assert turn.finished["stop_reason"] == OVERFLOW
        assert "Shorten the agent's memory" in str(turn.finished)
        assert await endpoint.requests() == []


async def test_a_long_talk_in_what_is_left_goes_on_by_compaction(world: World) -> None:
    home, endpoint = world.home("a"), await small_endpoint(world)
    believe(home, endpoint, WINDOW)
    await world.daemon(home, endpoint=endpoint)
    async with local_client(home.socket) as client:
        conversation = await agent_with(client, home, TIGHT)
        for number in range(12):
            turn = await conversation.turn(f"Question {number}. " + "The sea is wide. " * 12)
            assert turn.finished["stop_reason"] == "end_turn", (number, turn.finished)
        requests = await endpoint.requests()
        assert [request["number"] for request in requests if request["state"] == "fault"] == []
        summaries = [request for request in requests if not request["body"].get("tools")]
        assert summaries, "nothing was compacted"
        assert len(requests) <= 12 + 12
        assert_every_answer_has_room(requests)
        assert SUMMARY in requests[-1]["raw"]
        assert "Question 11." in requests[-1]["raw"]
        listed = await client.request(
            {
                "type": "conversation_messages_list",
                "conversation_id": "default",
                "query": {"agent_id": conversation.runtime["agent_id"], "limit": 200, "order": "asc"},
            }
        )
        said = [message for message in listed["messages"] if message["message_type"] == "user_message"]
        assert len(said) == 12, "the person sees everything"
        assert "Question 0." not in requests[-1]["raw"]
        assert "look them up with SearchMessages" in requests[-1]["raw"]
        looking = {"name": "SearchMessages", "arguments": {"query": '"Question 0"'}}
        turn = await conversation.turn(script({"calls": [looking]}, {"text": "found"}))
        assert "Question 0. The sea is wide." in turn.results[0], turn.results
        found = await client.request({"type": "lodger_search", "query": '"question 0" sea', "kinds": ["user"]})
        assert [one["kind"] for one in found["results"]] == ["user"], found
        assert found["results"][0]["snippet"].startswith("Question 0.")


async def test_a_result_larger_than_the_window_is_cut_for_the_model_only(world: World) -> None:
    home, endpoint = world.home("a"), await small_endpoint(world)
    believe(home, endpoint, WINDOW)
    await world.daemon(home, endpoint=endpoint)
    async with local_client(home.socket) as client:
        conversation = await agent_with(client, home, "Be kind. " * 1_000)
        flood = bash("for n in $(seq 1 2500); do echo line $n of it; done")
        turn = await conversation.turn(script({"calls": [flood]}, {"text": "seen"}))
        assert (turn.finished["stop_reason"], turn.text) == ("end_turn", "seen")
        requests = await endpoint.requests()
        assert "characters of this result were left out" in requests[-1]["raw"]
        assert [request["number"] for request in requests if request["state"] == "fault"] == []
        assert_every_answer_has_room(requests)


async def test_a_message_larger_than_the_window_is_told_so_and_the_next_one_is_answered(world: World) -> None:
    home, endpoint = world.home("a"), await small_endpoint(world)
    believe(home, endpoint, WINDOW)
    await world.daemon(home, endpoint=endpoint)
    async with local_client(home.socket) as client:
        conversation = await agent_with(client, home, "Be kind. " * 1_000)
        turn = await conversation.turn("The sea is wide. " * 3_000)
        assert turn.finished["stop_reason"] == OVERFLOW
        assert "Send less at a time" in str(turn.finished)
        assert await endpoint.requests() == []
        turn = await conversation.turn("Hello? " + script({"text": "here"}))
        assert (turn.finished["stop_reason"], turn.text) == ("end_turn", "here")
        assert_every_answer_has_room(await endpoint.requests())


async def test_a_window_that_is_smaller_than_was_believed_is_learnt_from_refusals(world: World) -> None:
    home, endpoint = world.home("a"), await small_endpoint(world)
    believe(home, endpoint, 128_000)
    await world.daemon(home, endpoint=endpoint)
    async with local_client(home.socket) as client:
        conversation = await agent_with(client, home, "Be kind. " * 1_000)
        outcomes = []
        for number in range(14):
            turn = await conversation.turn(f"Question {number}. " + "The sea is wide. " * 130)
            outcomes.append(turn.finished["stop_reason"])
        requests = await endpoint.requests()
        assert set(outcomes) == {"end_turn"}, outcomes
        faults = [request["number"] for request in requests if request["state"] == "fault"]
        assert 1 <= len(faults) <= 4, faults
        assert len(requests) <= 14 * 3
        assert_every_answer_has_room(requests)
