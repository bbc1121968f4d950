"""Messages that waited as a person stopped the turn: parked until the person goes on."""

import asyncio
import sqlite3
from collections.abc import Callable
from typing import Any

from lodger_daemon.identity import ConversationKey
from lodger_daemon.models.contract import (
    FailureKind,
    ModelFailure,
    TextChunk,
)
from lodger_daemon.turns.contract import (
    Accepted,
)
from lodger_daemon.turns.core import events as seen
from lodger_daemon.turns.core.stop_reasons import StopReason
from support.turn_parts import Gate, House, Scripted, calls, message, says
from support.turn_reading import finished, said


async def stopped_with_two_waiting(house: House) -> ConversationKey:
    key = await house.start()
    gate = Gate()
    house.models.play([TextChunk("x"), gate, *says("y")], says("all"))
    await house.say("one", "m1")
    await house.until(gate.reached.is_set)
    await house.say("two", "m2")
    await house.say("three", "m3")
    assert await house.conversations.abort(key)
    await house.settled()
    assert finished(house) == [(StopReason.CANCELLED, None)]
    return key


async def waiting(house: House) -> list[tuple[str, bool]]:
    return [(item.client_message_id, item.paused) for item in (await house.conversations.snapshot(house.key)).queue]


async def test_an_abort_parks_what_waits_until_the_person_goes_on(house: House) -> None:
    key = await stopped_with_two_waiting(house)
    assert await waiting(house) == [("m2", True), ("m3", True)]
    shown = [event for event in house.events if isinstance(event, seen.QueueChanged)]
    assert [item.paused for item in shown[-1].queue] == [True, True]
    assert await house.conversations.resume_queue(key) == 2
    await house.settled()
    assert await house.conversations.resume_queue(key) == 0
    assert said(house.models.requests[1]) == [["one"], ["two", "\n", "three"]]
    assert await waiting(house) == []


async def test_a_new_message_lets_parked_ones_go_on_before_it(house: House) -> None:
    await stopped_with_two_waiting(house)
    assert await house.say("four", "m4") == Accepted("queued")
    await house.settled()
    assert said(house.models.requests[1]) == [["one"], ["two", "\n", "three", "\n", "four"]]
    assert [reason for reason, _ in finished(house)] == [StopReason.CANCELLED, StopReason.END_TURN]


async def test_a_notice_is_handled_while_messages_are_parked(house: House) -> None:
    key = await stopped_with_two_waiting(house)
    notice = message("task ended", "n1")
    await house.conversations.submit_notice(key, notice, "task_notification", "task_notification")
    await house.settled()
    assert said(house.models.requests[1]) == [["one"], ["task ended"]]
    assert await waiting(house) == [("m2", True), ("m3", True)]


async def test_a_parked_message_can_be_removed_and_a_resent_one_releases_nothing(house: House) -> None:
    key = await stopped_with_two_waiting(house)
    assert await house.say("one", "m1") == Accepted("started", resent=True)
    [first, _] = (await house.conversations.snapshot(key)).queue
    assert await house.conversations.remove_queued(key, first.id)
    assert await waiting(house) == [("m3", True)]
    await house.settled()
    assert len(house.models.requests) == 1


async def test_what_was_parked_stays_parked_over_a_restart(house: House) -> None:
    key = await stopped_with_two_waiting(house)
    await house.crash()
    await house.restart()
    await house.settled()
    assert await waiting(house) == [("m2", True), ("m3", True)]
    assert await house.conversations.resume_queue(key) == 2
    await house.settled()
    assert said(house.models.requests[-1]) == [["one"], ["two", "\n", "three"]]


async def test_nothing_parked_is_taken_while_the_abort_is_still_being_written(house: House) -> None:
    key = await house.start()
    gate = Gate()
    house.models.play([TextChunk("x"), gate, *says("y")])
    await house.say("one", "m1")
    await house.until(gate.reached.is_set)
    await house.say("two", "m2")
    write, held = house.database.write, Gate()

    async def held_write(fn: Callable[[sqlite3.Connection], Any]) -> Any:
        if not held.reached.is_set():
            await held.wait()
        return await write(fn)

    house.database.write = held_write  # type: ignore[method-assign]
    abort = asyncio.ensure_future(house.conversations.abort(key))
    await house.until(held.reached.is_set)
    for _ in range(5):
        # Whatever else was handed to the store so far is written after this.
        await write(lambda _: None)
    assert not abort.done()
    assert finished(house) == []
    held.opened.set()
    assert await abort
    await house.settled()
    assert len(house.models.requests) == 1
    assert await waiting(house) == [("m2", True)]


async def folded_in(house: House, second: list[Scripted]) -> None:
    """A message has joined a turn in mid-turn; the model has not taken it up."""
    await house.start()
    slow = house.toolbox.gates["slow"] = Gate()
    house.models.play(calls("slow"), second, says("both"))
    await house.say("one", "m1")
    await house.until(slow.reached.is_set)
    await house.say("two", "m2")
    slow.opened.set()
    await house.until_seen(seen.InputEchoed)


async def test_what_joined_a_turn_that_a_person_stops_is_parked_at_the_head(house: House) -> None:
    gate = Gate()
    await folded_in(house, [gate])
    await house.until(gate.reached.is_set)
    await house.say("three", "m3")
    assert await house.conversations.abort(house.key)
    await house.settled()
    assert await waiting(house) == [("m2", True), ("m3", True)]
    shown = [event for event in house.events if isinstance(event, seen.QueueChanged)]
    assert [(item.client_message_id, item.paused) for item in shown[-1].queue] == [("m2", True), ("m3", True)]
    assert await house.conversations.resume_queue(house.key) == 2
    await house.settled()
    assert said(house.models.requests[-1]) == [["one"], ["two", "\n", "three"]]


async def test_what_joined_a_turn_that_fails_starts_the_next_one(house: House) -> None:
    await folded_in(house, [ModelFailure(FailureKind.BAD_REQUEST, "no")])
    await house.settled()
    assert [reason for reason, _ in finished(house)] == [StopReason.ERROR, StopReason.END_TURN]
    assert said(house.models.requests[-1]) == [["one"], ["two"]]
