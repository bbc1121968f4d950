"""Numbers, order and keeping of a conversation's events."""

from pathlib import Path

from lodger_daemon.identity import AgentId, ConversationId, ConversationKey
from lodger_daemon.store import conversation_rows, event_rows
from lodger_daemon.store.database import Database
from lodger_daemon.turns.core.events import DeviceStateChanged, NumberedEvent
from lodger_daemon.turns.event_log import FORGET_EVERY_ROWS, NUMBER_BLOCK, ROWS_KEPT, EventLog, reserve_first_block
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
