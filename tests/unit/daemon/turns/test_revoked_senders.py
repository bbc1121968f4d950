"""ATTACKS.md E5 on the machine: what a revoked device has sent is not begun, and what it has begun is stopped."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lodger_daemon.identity import ClientMessageId, ConversationKey
from lodger_daemon.turns.contract import (
    Accepted,
    InputMessage,
    NewAgent,
    Receipt,
    Refused,
    SendersDropped,
    StartRuntime,
    Submission,
)
from lodger_daemon.turns.core.events import QueueChanged, QueueRemoval, TurnFinished
from support.turn_parts import Gate, House, TextChunk, says

LOST, KEPT = "device-lost", "device-kept"


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    made = House(tmp_path)
    yield made
    await made.close()


async def send(house: House, text: str, sender: str, key: ConversationKey | None = None) -> Receipt:
    message = InputMessage(ClientMessageId(f"cm-{text}"), text, f"otid-{text}")
    return await house.conversations.submit(key or house.key, Submission((message,), sender=sender))


async def busy(house: House, sender: str) -> Gate:
    """A turn of that device's that waits for its model."""
    gate = Gate()
    house.models.play([TextChunk("x"), gate, *says("y")], says("then"), says("and then"))
    assert isinstance(await send(house, "first", sender), Accepted)
    await house.until(gate.reached.is_set)
    return gate


def outcomes(house: House) -> list[tuple[str, str, str | None]]:
    with sqlite3.connect(house.folder / "lodger.db") as database:
        rows = database.execute("SELECT client_message_id, status, outcome FROM inbox ORDER BY number")
        return [(str(first), str(second), third) for first, second, third in rows]


async def test_e5_what_waits_of_a_revoked_device_is_dropped_and_of_others_is_not(house: House) -> None:
    await house.start()
    gate = await busy(house, KEPT)
    for text, sender in (("a", LOST), ("b", KEPT), ("c", LOST)):
        await send(house, text, sender)
    assert await house.conversations.drop_senders([LOST, "device-of-nobody"]) == SendersDropped(2, 0)
    removed = [event.removed for event in house.events if isinstance(event, QueueChanged) and event.removed]
    assert removed[-1] == (QueueRemoval("cm-a", "cancelled"), QueueRemoval("cm-c", "cancelled"))
    gate.opened.set()
    await house.settled()
    assert outcomes(house) == [
        ("cm-first", "answered", "end_turn"),
        ("cm-a", "cancelled", "revoked"),
        ("cm-b", "answered", "end_turn"),
        ("cm-c", "cancelled", "revoked"),
    ]


async def test_e5_a_turn_of_a_revoked_device_is_stopped_and_what_others_sent_waits_for_a_word(house: House) -> None:
    key = await house.start()
    await busy(house, LOST)
    await send(house, "b", KEPT)
    assert await house.conversations.drop_senders([LOST]) == SendersDropped(0, 1)
    await house.settled()
    assert [event.stop_reason for event in house.events if isinstance(event, TurnFinished)] == ["cancelled"]
    assert [item.paused for item in (await house.conversations.snapshot(key)).queue] == [True]
    assert await house.conversations.resume_queue(key) == 1
    await house.settled()
    assert outcomes(house)[-1] == ("cm-b", "answered", "end_turn")


async def test_e5_nothing_more_is_taken_of_it_and_the_same_word_again_does_nothing(house: House) -> None:
    await house.start()
    assert await house.conversations.drop_senders([LOST]) == SendersDropped(0, 0)
    assert isinstance(await send(house, "late", LOST), Refused)
    house.models.play(says("hello"))
    await send(house, "mine", "")
    assert await house.conversations.drop_senders([LOST, ""]) == SendersDropped(0, 0)
    await house.settled()
    assert outcomes(house) == [("cm-mine", "answered", "end_turn")]


async def test_e5_messages_that_arrive_with_the_revocation_are_either_dropped_or_refused(house: House) -> None:
    """In every order in which both can reach the store."""
    await house.start()
    for number in range(30):
        started = await house.conversations.start_runtime(StartRuntime(new_agent=NewAgent(), conversation_id="default"))
        house.models.play([TextChunk("x"), Gate(), *says("never")])
        lost = f"device-{number}"
        sending = asyncio.create_task(send(house, f"n{number}", lost, started.key))
        for _ in range(number % 10):
            await asyncio.sleep(0)
        await house.conversations.drop_senders([lost])
        await sending
        await house.conversations.settled(started.key)
    ended = {(status, outcome) for _, status, outcome in outcomes(house)}
    assert ended <= {("cancelled", "revoked"), ("answered", "cancelled")}, ended


async def test_e5_what_waited_across_a_restart_is_dropped_too(house: House) -> None:
    await house.start()
    await busy(house, KEPT)
    await send(house, "a", LOST)
    await house.crash()
    await house.open()
    assert await house.conversations.drop_senders([LOST]) == SendersDropped(1, 0)
