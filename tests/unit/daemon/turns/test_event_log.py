"""Numbers, order and keeping of a conversation's events."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from lodger_daemon.identity import AgentId, ConversationId, ConversationKey
from lodger_daemon.store import conversation_rows, event_rows
from lodger_daemon.store.database import Database
from lodger_daemon.store.errors import StoreFull
from lodger_daemon.turns.core.events import DeviceStateChanged, NumberedEvent, StatusNote
from lodger_daemon.turns.event_log import (
    FORGET_EVERY_ROWS,
    HANDED_LOOK,
    NUMBER_BLOCK,
    ROWS_KEPT,
    EventLog,
    reserve_first_block,
)
from support.turn_parts import TestClock

KEY = ConversationKey(AgentId("agent-1"), ConversationId("default"))


async def opened(folder: Path) -> tuple[Database, EventLog]:
    clock = TestClock()
    database = Database.open(folder / "lodger.db", clock=clock)
    await database.write(lambda connection: conversation_rows.ensure(connection, KEY, clock.wall()))
    last = await database.write(lambda connection: reserve_first_block(connection, KEY))
    return database, EventLog(KEY, database, clock, last - NUMBER_BLOCK, last)


async def test_a_burst_beyond_its_block_is_stored_all_the_same(tmp_path: Path) -> None:
    database, log = await opened(tmp_path)
    heard: list[NumberedEvent] = []
    log.subscribe(heard.append)
    for _ in range(NUMBER_BLOCK + 10):
        log.publish(DeviceStateChanged())
    stored = await log.after(NUMBER_BLOCK - 5, 1_000)
    assert list(stored) == heard[NUMBER_BLOCK - 5 :]
    await log.aclose()
    assert database.counts.soon_failed == 0
    await database.aclose()


async def set_full(database: Database, full: bool) -> None:
    def limit(connection: sqlite3.Connection) -> None:
        pages = int(connection.execute("PRAGMA page_count").fetchone()[0])
        connection.execute(f"PRAGMA max_page_count = {pages if full else 1_000_000}")

    await database.write(limit)


async def test_r10_who_resumes_while_the_disk_is_full_is_told_so_instead_of_missing_events(tmp_path: Path) -> None:
    database, log = await opened(tmp_path)
    await set_full(database, True)
    log.publish(StatusNote("x" * 50_000, "info"))
    log.flush()
    log.publish(StatusNote("small enough for the room there is", "info"))
    with pytest.raises(StoreFull):
        await log.after(log.last_number - 2, 100)
    await set_full(database, False)
    resumed = await log.after(log.last_number - 2, 100)
    assert [one.number for one in resumed] == [log.last_number - 1, log.last_number]
    assert await log.after(log.last_number - 2, 100) == resumed
    await log.aclose()
    await database.aclose()
    assert database.counts.soon_failed == 0


async def test_r10_a_write_that_finds_room_leaves_out_nothing_of_one_that_finds_none(tmp_path: Path) -> None:
    database, log = await opened(tmp_path)
    await set_full(database, True)
    before = log.last_number
    log.publish(StatusNote("told with what finds no room", "info"))

    def too_much(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO settings (key, value, updated_at) VALUES ('x', ?, 0)", (f'"{"x" * 50_000}"',))

    failed, resumed = await asyncio.gather(log.write(too_much), log.after(before, 100), return_exceptions=True)
    assert isinstance(failed, StoreFull)
    assert isinstance(resumed, tuple)
    assert [one.number for one in resumed] == [before + 1]
    await set_full(database, False)
    await log.aclose()
    await database.aclose()
    assert database.counts.soon_failed == 0


async def test_batches_that_are_written_are_not_kept(tmp_path: Path) -> None:
    database, log = await opened(tmp_path)
    for _ in range(3 * HANDED_LOOK):
        log.publish(DeviceStateChanged())
        log.flush()
        await database.write(lambda _: None)
    assert len(log._handed) <= HANDED_LOOK
    assert len(await log.after(0, 1_000)) == 3 * HANDED_LOOK
    assert log._handed == []
    await log.aclose()
    await database.aclose()


async def test_old_events_are_forgotten_and_whoever_comes_back_later_is_told(tmp_path: Path) -> None:
    database, log = await opened(tmp_path)
    for _ in range(ROWS_KEPT + FORGET_EVERY_ROWS):
        log.publish(DeviceStateChanged())
    assert await log.resume_point(3) == 3
    log.flush()
    log.forget_old()
    log.publish(DeviceStateChanged())
    await log.store_held()
    left = await database.read(lambda connection: event_rows.after(connection, KEY, 0))
    assert left[0].number == FORGET_EVERY_ROWS + 1
    assert await log.resume_point(3) == FORGET_EVERY_ROWS
    assert await log.resume_point(FORGET_EVERY_ROWS) == FORGET_EVERY_ROWS
    await log.aclose()
    await database.aclose()


async def test_a_number_of_another_database_is_no_place_to_go_on_from(tmp_path: Path) -> None:
    database, log = await opened(tmp_path)
    log.publish(DeviceStateChanged())
    assert await log.resume_point(2) == 1
    assert await log.resume_point(1) == 1
    await log.aclose()
    await database.aclose()
