"""Messages that come while a turn runs: joined, removed, taken by the next turn."""

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from lodger_daemon.identity import QueueItemId
from lodger_daemon.models.contract import (
    TextChunk,
)
from lodger_daemon.store.errors import StateConflict
from lodger_daemon.turns import records
from lodger_daemon.turns.contract import (
    Accepted,
    Allow,
)
from lodger_daemon.turns.core import events as seen
from lodger_daemon.turns.core.stop_reasons import StopReason
from support.turn_parts import Gate, House, calls, says
from support.turn_reading import finished, names, said


async def test_messages_that_wait_become_one_turn(house: House) -> None:
    key = await house.start()
    gate = Gate()
    house.models.play([TextChunk("x"), gate, *says("y")], says("both"))
    await house.say("one", "m1")
    await house.until(gate.reached.is_set)
    assert await house.say("two", "m2") == Accepted("queued")
    assert await house.say("three", "m3") == Accepted("queued")
    await house.until_seen(seen.QueueChanged, 2)
    assert [item.client_message_id for item in (await house.conversations.snapshot(key)).queue] == ["m2", "m3"]
    house.events.clear()
    gate.opened.set()
    await house.settled()
    assert said(house.models.requests[1]) == [["one"], ["two", "\n", "three"]]
    echoes = house.seen(seen.InputEchoed)
    told = [(e.client_message_id, e.joined) for e in echoes if isinstance(e, seen.InputEchoed)]
    assert told == [("m2", ("m2", "m3"))]
    stored = await house.conversations.list_messages(key, descending=False)
    assert [m.get("client_message_ids") for m in stored if m["message_type"] == "user_message"] == [None, ["m2", "m3"]]
    removed = [e.removed for e in house.events if isinstance(e, seen.QueueChanged) and e.removed]
    assert removed == [(seen.QueueRemoval("m2", "dequeued"), seen.QueueRemoval("m3", "dequeued"))]
    order = names(house)
    assert order.index("InputEchoed") < order.index("QueueChanged")
    assert len(finished(house)) == 2


async def test_a_waiting_message_joins_at_a_tool_boundary_after_the_results(house: House) -> None:
    await house.start()
    gate = house.toolbox.gates["slow"] = Gate()
    house.models.play(calls("slow"), says("both"))
    await house.say("one", "m1")
    await house.until(gate.reached.is_set)
    await house.say("two", "m2")
    await house.say("later", "m3", delivery="turn_end")
    gate.opened.set()
    await house.settled()
    assert said(house.models.requests[1]) == [["one"], ["two"]]
    assert [type(m).__name__ for m in house.models.requests[1].messages][-2:] == ["ToolMessage", "UserMessage"]
    assert said(house.models.requests[2]) == [["one"], ["two"], ["later"]]


async def test_a_waiting_message_can_be_removed(house: House) -> None:
    key = await house.start()
    gate = Gate()
    house.models.play([TextChunk("x"), gate, *says("y")])
    await house.say("one", "m1")
    await house.until(gate.reached.is_set)
    await house.say("two", "m2")
    [item] = (await house.conversations.snapshot(key)).queue
    assert await house.conversations.remove_queued(key, item.id)
    assert not await house.conversations.remove_queued(key, item.id)
    gate.opened.set()
    await house.settled()
    assert len(house.models.requests) == 1


async def test_why_the_queue_waits_is_told_when_it_changes(house: House) -> None:
    key = await house.start()
    first = house.toolbox.gates["ask a"] = Gate()
    house.models.play(calls("ask a"), says("done"), says("later"))
    await house.say("one", "m1")
    [question] = await house.until_seen(seen.QuestionAsked)
    assert isinstance(question, seen.QuestionAsked)
    assert house.seen(seen.QueueBlocked) == []
    await house.say("two", "m2", delivery="turn_end")
    await house.until_seen(seen.QueueBlocked)
    await house.say("three", "m3", delivery="turn_end")
    await house.conversations.answer(key, question.question_id, Allow())
    await house.until(first.reached.is_set)
    first.opened.set()
    await house.settled()
    assert [e.reason for e in house.events if isinstance(e, seen.QueueBlocked)] == [
        seen.BlockedBy.QUESTION,
        seen.BlockedBy.TURN,
        None,
    ]


async def test_a_turn_whose_end_could_not_be_written_is_taken_up_by_the_next_message(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.start()
    cannot_end_once(monkeypatch)
    house.models.play(calls("once"), says("lost"), says("found"), says("second"))
    await house.say("one", "m1")
    await house.until_seen(seen.LoopFailed)
    await house.until(lambda: house.seen(seen.LoopFailed)[-1].terminal)  # type: ignore[attr-defined]
    assert finished(house) == []
    assert await house.say("two", "m2") == Accepted("queued")
    await house.settled()
    assert [reason for reason, _ in finished(house)] == [StopReason.END_TURN, StopReason.END_TURN]
    assert house.toolbox.ran == ["once"]
    assert said(house.models.requests[-1]) == [["one"], ["two"]]
    assert await house.say("three", "m3") == Accepted("started")
    await house.settled()


async def test_two_messages_at_once_take_such_a_turn_up_together(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    await house.start()
    cannot_end_once(monkeypatch)
    house.models.play(calls("once"), says("lost"), says("found"), says("second"), says("third"))
    await house.say("one", "m1")
    await house.until_seen(seen.LoopFailed)
    await house.until(lambda: house.seen(seen.LoopFailed)[-1].terminal)  # type: ignore[attr-defined]
    receipts = await asyncio.gather(house.say("two", "m2"), house.say("three", "m3"))
    assert receipts == [Accepted("queued"), Accepted("queued")]
    await house.settled()
    assert house.toolbox.ran == ["once"]
    assert "two" in str(said(house.models.requests[-1]))
    assert "three" in str(said(house.models.requests[-1]))


def cannot_end_once(monkeypatch: pytest.MonkeyPatch) -> None:
    end_turn, failed = records.end_turn, False

    def failing_once(*arguments: Any) -> None:
        nonlocal failed
        if not failed:
            failed = True
            raise StateConflict("a row is not as it should be")
        end_turn(*arguments)

    monkeypatch.setattr(records, "end_turn", failing_once)


async def test_a_message_removed_as_its_turn_begins_leaves_no_trace_of_a_turn(house: House) -> None:
    key = await house.start()
    gate = Gate()
    house.models.play([TextChunk("x"), gate, *says("y")])
    await house.say("one", "m1")
    await house.until(gate.reached.is_set)
    await house.say("two", "m2")
    write = house.database.write
    removed: list[bool] = []

    async def write_after_removal(fn: Callable[[sqlite3.Connection], Any]) -> Any:
        if house.seen(seen.TurnFinished) and not removed:
            removed.append(True)
            removed[0] = await house.conversations.remove_queued(key, QueueItemId("q-2"))
        return await write(fn)

    house.database.write = write_after_removal  # type: ignore[method-assign]
    gate.opened.set()
    await house.settled()
    assert removed == [True]
    open_turns = await house.database.read(
        lambda connection: connection.execute("SELECT turn_id FROM turns WHERE status = 'active'").fetchall()
    )
    assert open_turns == []
    assert len(house.models.requests) == 1
    assert finished(house) == [(StopReason.END_TURN, None)]
    assert house.seen(seen.LoopFailed) == []
