"""Compaction between and within turns, and commands that wait their turn, take long or are left."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from lodger_daemon.identity import ConversationKey
from lodger_daemon.models.contract import (
    ModelRequest,
    TextChunk,
)
from lodger_daemon.turns.contract import (
    Accepted,
    ConversationError,
)
from lodger_daemon.turns.core import events as seen
from lodger_daemon.turns.core.events import LoopStatus
from lodger_daemon.turns.core.stop_reasons import StopReason
from support.turn_parts import Gate, House, says
from support.turn_reading import finished, said


async def test_a_long_conversation_is_compacted_before_it_overflows(house: House) -> None:
    await house.start()
    house.models.window = 3_000
    for number in range(8):
        house.models.play(says("long answer " * 60))
        await house.say(f"question {number} " + "words " * 60, f"m{number}")
        await house.settled()
        if house.seen(seen.StatusNote):
            break
    notes = [e.message for e in house.events if isinstance(e, seen.StatusNote)]
    assert any("summary" in note for note in notes)
    assert finished(house)[-1][0] is StopReason.END_TURN
    last = house.models.requests[-1]
    assert "earlier messages" in str(last.messages[1])
    assert f"question {len(finished(house)) - 1}" in str(last.messages[-1])


async def test_a_command_waits_its_turn(house: House) -> None:
    key = await house.start()
    gate = Gate()
    house.models.play([TextChunk("x"), gate, *says("y")])
    await house.say("one", "m1")
    await house.until(gate.reached.is_set)
    with pytest.raises(ConversationError):
        await house.conversations.compact(key)
    gate.opened.set()
    await house.settled()
    report = await house.conversations.compact(key)
    assert report["compacted"] is False
    assert house.seen(seen.LoopStatusChanged)[-1].status is LoopStatus.WAITING_ON_INPUT


async def long_enough_to_compact(house: House) -> ConversationKey:
    key = await house.start()
    for number in range(6):
        house.models.play(says("long answer " * 60))
        await house.say(f"question {number} " + "words " * 60, f"m{number}")
        await house.settled()
    return key


async def test_a_command_whose_client_leaves_is_over_when_it_has_stopped(house: House) -> None:
    key = await long_enough_to_compact(house)
    summing_up, closing = Gate(), Gate()
    stream = house.models.stream

    async def slow_to_close(request: ModelRequest) -> AsyncIterator[Any]:
        try:
            async for chunk in stream(request):
                yield chunk
        finally:
            if summing_up.reached.is_set():
                await closing.wait()

    house.models.stream = slow_to_close  # type: ignore[method-assign]
    house.models.play([summing_up, *says("a summary")], says("after"))
    compacting = asyncio.ensure_future(house.conversations.compact(key))
    await house.until(summing_up.reached.is_set)
    compacting.cancel()
    await house.until(closing.reached.is_set)
    before = len(house.models.requests)
    assert await house.say("and then", "m9") == Accepted("queued")
    await house.until_seen(seen.QueueChanged)
    assert len(house.models.requests) == before
    closing.opened.set()
    await house.settled()
    assert len(house.models.requests) == before + 1


async def test_a_command_that_takes_long_can_be_stopped(house: House) -> None:
    key = await long_enough_to_compact(house)
    summing_up = Gate()
    house.models.play([summing_up, *says("a summary")], says("after"))
    compacting = asyncio.ensure_future(house.conversations.compact(key))
    await house.until(summing_up.reached.is_set)
    await house.say("and then", "m9")
    assert await house.conversations.abort(key)
    with pytest.raises(ConversationError, match="stopped"):
        await compacting
    await house.settled()
    assert house.models.open_streams == 0
    assert "and then" in str(said(house.models.requests[-1])[-1])
    assert finished(house)[-1] == (StopReason.END_TURN, None)
