"""Turns in a window that is too small for them: a clear end or a compaction, never a loop."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lodger_daemon.models.contract import (
    FailureKind,
    FinishReason,
    ModelFailure,
    ReasoningChunk,
    StepEnded,
    TextChunk,
    Usage,
)
from lodger_daemon.turns.core import events as seen
from lodger_daemon.turns.core.stop_reasons import StopReason
from lodger_tools.toolbox_contract import ToolOutcome
from support.turn_parts import House, Scripted, calls, says

TOO_LONG = ModelFailure(FailureKind.CONTEXT_OVERFLOW, "prompt is too long", status=400)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    one = House(tmp_path)
    await one.start()
    yield one
    await one.close()


async def turn(house: House, text: str, number: int) -> tuple[StopReason, str | None]:
    await house.say(text, f"m{number}")
    await house.settled()
    last = house.seen(seen.TurnFinished)[-1]
    assert isinstance(last, seen.TurnFinished)
    return last.stop_reason, last.error


async def test_a_floor_that_fills_the_window_ends_the_turn_with_words_and_without_a_request(house: House) -> None:
    house.models.window = 900
    stop_reason, error = await turn(house, "hi", 1)
    assert stop_reason is StopReason.CONTEXT_WINDOW_OVERFLOW
    assert error is not None
    for words in ("test/model reads about 900 tokens", "Shorten the agent's memory", "larger window"):
        assert words in error
    assert house.models.requests == []
    house.models.window = 100_000
    house.clock.advance(61)
    assert await turn(house, "hi", 2) == (StopReason.END_TURN, None)


async def test_a_message_too_long_for_the_window_is_answered_for_and_does_not_block_the_next(house: House) -> None:
    house.models.window = 4_000
    house.models.play(says("They sent a long text."))
    stop_reason, error = await turn(house, "word " * 4_000, 1)
    assert (stop_reason, "Send less at a time" in str(error)) == (StopReason.CONTEXT_WINDOW_OVERFLOW, True)
    assert house.models.requests == []
    assert await turn(house, "hello", 2) == (StopReason.END_TURN, None)
    answered = house.models.requests[-1]
    assert "word word word" not in str(answered.messages)
    assert "1 earlier messages" in str(answered.messages[1])


async def test_a_result_too_long_for_the_window_is_shown_without_its_middle(house: House) -> None:
    house.models.window = 4_000
    house.toolbox.outcomes["big"] = ToolOutcome("success", "line of output\n" * 2_000)
    house.models.play(calls("big"), says("seen"))
    assert await turn(house, "go", 1) == (StopReason.END_TURN, None)
    assert "characters of this result were left out" in str(house.models.requests[-1].messages)
    messages = await house.conversations.list_messages(house.key, descending=False)
    whole = [message for message in messages if message["message_type"] == "tool_return_message"]
    assert whole[0]["tool_return"] == "line of output\n" * 2_000
    before = house.models.requests[-1].messages
    forked, original = await house.conversations.fork_conversation(house.key), house.key
    house.key = forked
    await turn(house, "in a fork", 5)
    assert "characters of this result were left out" in str(house.models.requests[-1].messages)
    assert len(str(house.models.requests[-1].messages)) < 10_000
    house.key = original
    await house.crash()
    await house.restart()
    await turn(house, "again", 2)
    assert house.models.requests[-1].messages[: len(before)] == before


async def test_a_provider_that_refuses_for_ever_is_not_asked_for_ever(house: House) -> None:
    for number in range(4):
        await turn(house, "words " * 50, number)
    before = len(house.models.requests)
    house.models.play(*([TOO_LONG] for _ in range(50)))
    stop_reason, error = await turn(house, "more", 9)
    assert stop_reason is StopReason.CONTEXT_WINDOW_OVERFLOW
    assert error
    assert len(house.models.requests) - before <= 30


async def test_a_refusal_teaches_that_the_window_is_smaller_than_was_thought(house: House) -> None:
    for number in range(6):
        house.models.play(says("long answer " * 60))
        await turn(house, f"question {number} " + "words " * 200, number)
    house.models.play([TOO_LONG], says("They asked six times."), says("fine"))
    assert await turn(house, "one more", 9) == (StopReason.END_TURN, None)
    refused, summary, answered = house.models.requests[-3:]
    assert "They asked six times." in str(answered.messages)
    assert len(str(answered.messages)) < 0.75 * len(str(refused.messages))
    assert "one more" in str(answered.messages[-1])
    assert summary.tools == ()
    for number in range(10, 20):
        await turn(house, f"question {number} " + "words " * 200, number)
    assert len(house.seen(seen.StatusNote)) > 1
    assert all(len(str(sent.messages)) < len(str(refused.messages)) for sent in house.models.requests[-10:])


async def test_a_report_of_more_tokens_brings_compaction_forward(house: House) -> None:
    house.models.window = 6_000
    for number in range(3):
        house.models.play([TextChunk("ok"), StepEnded(FinishReason.STOP, Usage(prompt=0, completion=1))])
        await turn(house, "words " * 400, number)
    assert not house.seen(seen.StatusNote)
    prompt = int(2.2 * sum(len(str(message)) for message in house.models.requests[-1].messages) / 4)
    house.models.play([TextChunk("ok"), StepEnded(FinishReason.STOP, Usage(prompt=prompt, completion=1))])
    await turn(house, "so far so good", 8)
    house.models.play(says("They repeated words."), says("fine"))
    assert await turn(house, "and now", 9) == (StopReason.END_TURN, None)
    assert house.seen(seen.StatusNote)


async def test_near_the_end_of_the_window_an_answer_may_take_what_was_kept_for_it(house: House) -> None:
    await turn(house, "hi", 1)
    assert house.models.requests[-1].max_output_tokens is None
    house.models.window = 1_800
    house.clock.advance(61)
    await turn(house, "words " * 200, 2)
    limit = house.models.requests[-1].max_output_tokens
    assert limit is not None
    assert 512 <= limit <= 1_000


async def test_a_model_that_cannot_summarise_ends_the_turn_with_words(house: House) -> None:
    for number in range(4):
        await turn(house, "words " * 50, number)
    no_key = ModelFailure(FailureKind.AUTHENTICATION, "no such key")
    house.models.play([TOO_LONG], [no_key])
    stop_reason, error = await turn(house, "more", 9)
    assert stop_reason is StopReason.CONTEXT_WINDOW_OVERFLOW
    assert "could not summarise the conversation: no such key" in str(error)


async def test_a_summary_that_helps_nothing_is_not_asked_for_at_every_step(house: House) -> None:
    house.models.window = 3_000
    for number in range(5):
        house.models.play(says("ok"))
        await turn(house, "words " * 238, number)
    steps = [calls(f"echo {number}") for number in range(4)]
    before = len(house.models.requests)
    house.models.play(says(""), *steps, says("done"))
    await turn(house, "and now " + "words " * 20, 9)
    asked = house.models.requests[before:]
    assert len([request for request in asked if not request.tools]) == 1
    assert len(asked) == 6


async def test_reasoning_counts_within_its_turn_and_no_longer(house: House) -> None:
    house.models.window = 4_000
    for number in range(6):
        house.models.play([ReasoningChunk("hmm " * 1_000), *says("ok")])
        await turn(house, "think", number)
    assert not house.seen(seen.StatusNote), "six times a thousand tokens that are not given back"
    steps: list[list[Scripted]] = [[ReasoningChunk("hmm " * 800), *calls(f"echo {number}")] for number in range(5)]
    house.models.play(*steps, says("done"))
    await turn(house, "work", 9)
    assert house.seen(seen.StatusNote), "four times eight hundred that are"
