"""What an hour's clearing away leaves."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from lodger_daemon.clock import WallTime
from lodger_daemon.identity import TurnId
from lodger_daemon.service.housekeeping import EVENTS_KEPT_S, EVERY_S, keep_house
from lodger_daemon.service.settings import AuditSettings
from lodger_daemon.store import audit_rows, conversation_rows, event_rows, turn_rows
from lodger_daemon.store.audit_rows import AuditRow
from lodger_daemon.store.database import Database
from lodger_daemon.store.event_rows import EventRow
from lodger_daemon.turns.core.stop_reasons import StopReason
from lodger_tools.output.overflow import OverflowFolder
from support.patience import LIMIT_S
from support.store_rows import KEY
from support.turn_parts import TestClock


class Noticing(TestClock):
    """Tells when somebody begins to wait."""

    def __init__(self) -> None:
        super().__init__()
        self._waited = asyncio.Event()

    async def sleep(self, delay_s: float) -> None:
        self._waited.set()
        await super().sleep(delay_s)

    async def until_waited_on(self) -> None:
        async with asyncio.timeout(LIMIT_S):
            await self._waited.wait()
        self._waited.clear()


async def keep(database: Database, folder: Path, clock: TestClock) -> None:
    await keep_house(database, OverflowFolder(folder / "overflow"), clock, AuditSettings(keep_days=30, keep_rows=1_000))


async def audited(database: Database) -> list[str]:
    return [row.subject for row in reversed(await database.read(lambda c: audit_rows.newest(c, 10_000)))]


async def test_the_audit_log_is_kept_by_age_and_by_number_and_whole_for_an_open_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_rows, "PRUNE_AT_ONCE", 7)
    clock = Noticing()
    database = Database.open(tmp_path / "lodger.db", clock=clock)

    async def note(subject: str) -> None:
        row = AuditRow(clock.wall(), "daemon", "x", subject, {})
        await database.write(lambda c: audit_rows.record(c, row))

    await database.write(lambda c: conversation_rows.ensure(c, KEY, clock.wall()))
    for number in range(20):
        await note(f"old {number}")
    clock.advance(1)
    turn_id, began = TurnId("turn-1"), clock.wall()
    await database.write(lambda c: turn_rows.start(c, KEY, turn_id, "message", began))
    await note("of the turn")
    clock.advance(31 * 24 * 3600.0)
    await note("young")
    keeping = asyncio.ensure_future(keep(database, tmp_path, clock))
    await clock.until_waited_on()
    assert await audited(database) == ["of the turn", "young"]
    await database.write(lambda c: turn_rows.finish(c, turn_id, StopReason.END_TURN, clock.wall()))
    many = AuditRow(clock.wall(), "daemon", "x", "many", {})

    def note_many(connection: sqlite3.Connection) -> None:
        for _ in range(1_005):
            audit_rows.record(connection, many)

    await database.write(note_many)
    clock.advance(EVERY_S)
    await clock.until_waited_on()
    assert await audited(database) == ["many"] * 1_000
    clock.advance(60 * 24 * 3600.0)
    await clock.until_waited_on()
    assert await audited(database) == ["many"], "the newest stays, so that no number is given twice"
    keeping.cancel()
    await asyncio.wait({keeping})
    await database.aclose()


async def test_events_are_kept_for_two_weeks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_rows, "FORGET_AT_ONCE", 1)
    clock = Noticing()
    database = Database.open(tmp_path / "lodger.db", clock=clock)
    now = clock.wall()
    await database.write(lambda c: conversation_rows.ensure(c, KEY, now))
    await database.write(lambda c: event_rows.reserve_numbers(c, KEY, 9))
    late = WallTime(now + EVERY_S)
    rows = (EventRow(1, now, "text", "{}"), EventRow(2, now, "text", "{}"), EventRow(3, late, "text", "{}"))
    await database.write(lambda c: event_rows.insert(c, KEY, rows))
    keeping = asyncio.ensure_future(keep(database, tmp_path, clock))
    await clock.until_waited_on()
    assert await database.read(lambda c: event_rows.after(c, KEY, 0)) == rows
    clock.advance(EVENTS_KEPT_S + 1)
    await clock.until_waited_on()
    assert await database.read(lambda c: event_rows.after(c, KEY, 0)) == rows[2:]
    keeping.cancel()
    await asyncio.wait({keeping})
    await database.aclose()
