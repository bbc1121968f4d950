"""What a turn goes past while it is on its way to the disk: nothing of it is shown before, nothing overtakes it."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lodger_daemon.models.contract import ToolMessage
from lodger_daemon.store import journal_rows
from lodger_daemon.store.errors import ConstraintViolated, StoreFull
from lodger_daemon.turns.core import events as seen
from lodger_daemon.turns.core.stop_reasons import StopReason
from lodger_daemon.turns.core.words import INTERRUPTED_NOTE
from lodger_daemon.turns.desk import STORE_RETRY_S
from support.turn_parts import Gate, House, calls, says


@pytest.fixture
async def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[House]:
    one = House(tmp_path)
    await one.start()
    yield one
    monkeypatch.undo()
    await one.close()


@pytest.fixture
def on_its_way(house: House, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """Where the write of a result stands before the disk."""
    gate = Gate()
    at_the_result(house, monkeypatch, gate.wait)
    yield gate
    gate.opened.set()


def at_the_result(house: House, patches: pytest.MonkeyPatch, happens: Callable[[], Awaitable[None]]) -> None:
    """Have something happen to the writes that would finish a call in the journal, before they reach the disk."""
    write = house.database.write

    async def watched(change: Callable[[sqlite3.Connection], Any]) -> Any:
        if _finishes_a_call(house, change):
            await happens()
        return await write(change)

    patches.setattr(house.database, "write", watched)


def _finishes_a_call(house: House, change: Callable[[sqlite3.Connection], Any]) -> bool:
    """Played on a copy of the database."""
    with sqlite3.connect(":memory:") as copy, sqlite3.connect(house.database.path) as now:
        now.backup(copy)
        before = copy.execute("SELECT COUNT(*) FROM journal WHERE status = 'finished'").fetchone()
        change(copy)
        return bool(copy.execute("SELECT COUNT(*) FROM journal WHERE status = 'finished'").fetchone() != before)


def results_told(house: House) -> list[str]:
    return [message.text for message in house.models.requests[-1].messages if isinstance(message, ToolMessage)]


async def test_the_model_is_asked_while_a_result_is_on_its_way_and_clients_see_it_when_it_is_there(
    house: House, on_its_way: Gate
) -> None:
    house.models.play(calls("one"), says("done"))
    await house.say("go", "m1")
    await on_its_way.reached.wait()
    await house.until(lambda: len(house.models.requests) == 2)
    assert results_told(house) == ["ran one"]
    shown = len(house.events)
    assert house.seen(seen.ToolEnded) == house.seen(seen.ToolReturned) == []
    on_its_way.opened.set()
    await house.settled()
    kinds = [type(event) for event in house.events[shown:]]
    assert kinds[:2] == [seen.ToolEnded, seen.ToolReturned]
    assert kinds.index(seen.AssistantText) > kinds.index(seen.LoopStatusChanged) > 1
    assert [event.stop_reason for event in house.seen(seen.TurnFinished)] == [StopReason.END_TURN]


@pytest.mark.parametrize("tool", ["Bash", "Read"])
async def test_the_next_request_leaves_before_the_writer_has_a_result(
    house: House, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    asked: list[int] = []

    async def look() -> None:
        asked.append(len(house.models.requests))

    at_the_result(house, monkeypatch, look)
    house.models.play(calls("one", name=tool), says("done"))
    await house.say("go", "m1")
    await house.settled()
    assert asked[0] == 2


async def test_what_a_step_read_is_stored_with_the_step_and_the_model_is_asked_beside_it(
    house: House, on_its_way: Gate
) -> None:
    house.models.play(calls("one", "two", name="Read"), says("done"))
    await house.say("go", "m1")
    await on_its_way.reached.wait()
    await house.until(lambda: len(house.models.requests) == 2)
    assert results_told(house) == ["ran one", "ran two"]
    assert house.seen(seen.ToolCallRequested) == []
    assert house.database.read_now(lambda connection: journal_rows.unfinished(connection, house.key)) == ()
    on_its_way.opened.set()
    await house.settled()
    told = (seen.ToolCallRequested, seen.ToolStarted, seen.ToolEnded, seen.ToolReturned)
    assert [type(event) for event in house.events if isinstance(event, told)] == [
        *[seen.ToolCallRequested] * 2,
        *[seen.ToolStarted] * 2,
        *[seen.ToolEnded, seen.ToolReturned] * 2,
    ]
    assert house.toolbox.ran == ["one", "two"]


async def test_a_result_that_will_never_be_stored_ends_the_turn_and_the_conversation_goes_on_from_the_disk(
    house: House,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refused() -> None:
        raise ConstraintViolated("no such row here")

    at_the_result(house, monkeypatch, refused)
    answer = Gate()
    house.models.play(calls("one"), [answer, *says("of a result that nobody stored")], says("so be it"), says("and on"))
    await house.say("go", "m1")
    await house.until(lambda: any(event.terminal for event in house.seen(seen.LoopFailed)))
    assert house.seen(seen.ToolReturned) == []
    assert house.seen(seen.AssistantText) == []
    monkeypatch.undo()
    await house.say("and now?", "m2")
    await house.until(lambda: len(house.seen(seen.TurnFinished)) == 2)
    await house.settled()
    [result] = results_told(house)
    assert "effect is unknown" in result
    assert [event.text for event in house.seen(seen.AssistantText)] == ["so be it", "and on"]


@pytest.mark.parametrize("tool", ["Bash", "Read"])
async def test_while_the_disk_is_full_a_person_sees_why_and_can_stop_the_turn(
    house: House, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    full = True

    async def refused() -> None:
        if full:
            raise StoreFull(house.database.path)

    at_the_result(house, monkeypatch, refused)
    house.models.play(calls("one", name=tool), [Gate(), *says("never")])
    await house.say("go", "m1")
    await house.until(lambda: any("full" in event.message for event in house.seen(seen.StatusNote)))
    assert house.seen(seen.ToolReturned) == []
    stopping = asyncio.create_task(house.conversations.abort(house.key))
    await house.until(lambda: any(INTERRUPTED_NOTE in event.message for event in house.seen(seen.StatusNote)))
    assert not stopping.done()
    full = False
    house.clock.advance(STORE_RETRY_S)
    assert await stopping
    await house.until(lambda: house.seen(seen.TurnFinished) != [])
    assert [event.text for event in house.seen(seen.ToolReturned)] == ["ran one"]
    assert [event.stop_reason for event in house.seen(seen.TurnFinished)] == [StopReason.CANCELLED]
