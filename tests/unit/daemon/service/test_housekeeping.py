"""What an hour's clearing away leaves."""

import asyncio
from pathlib import Path

import pytest

from lodger_daemon.clock import WallTime
from lodger_daemon.service.housekeeping import EVENTS_KEPT_S, EVERY_S, keep_house
from lodger_daemon.store import conversation_rows, event_rows
from lodger_daemon.store.database import Database
from lodger_daemon.store.event_rows import EventRow
from lodger_tools.output.overflow import OverflowFolder
from support.store_rows import KEY
from support.turn_parts import WAIT_LIMIT_S, TestClock


class Noticing(TestClock):
    """Tells when somebody begins to wait."""

    def __init__(self) -> None:
        super().__init__()
        self._waited = asyncio.Event()

    async def sleep(self, delay_s: float) -> None:
        self._waited.set()
        await super().sleep(delay_s)

    async def until_waited_on(self) -> None:
        async with asyncio.timeout(WAIT_LIMIT_S):
            await self._waited.wait()
        self._waited.clear()


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
    keeping = asyncio.ensure_future(keep_house(database, OverflowFolder(tmp_path / "overflow"), clock))
    await clock.until_waited_on()
    assert await database.read(lambda c: event_rows.after(c, KEY, 0)) == rows
    clock.advance(EVENTS_KEPT_S + 1)
    await clock.until_waited_on()
    assert await database.read(lambda c: event_rows.after(c, KEY, 0)) == rows[2:]
    keeping.cancel()
    await asyncio.wait({keeping})
    await database.aclose()
