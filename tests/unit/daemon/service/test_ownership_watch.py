"""The look for another owner: it stops a replaced daemon, and a disk in trouble does not end it."""

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from lodger_daemon.service.ownership_watch import LOOK_EVERY_S, watch_ownership
from lodger_daemon.store.database import Database
from lodger_daemon.store.errors import StoreFull
from support.patience import LIMIT_S
from support.store_rows import HandClock
from support.turn_parts import TestClock

T = TypeVar("T")


async def test_a_disk_in_trouble_does_not_end_the_look_for_another_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database.open(tmp_path / "lodger.db", clock=HandClock())
    reading, troubles = database.read_now, [StoreFull(database.path)]

    def read_now(fn: Callable[[sqlite3.Connection], T]) -> T:
        if troubles:
            raise troubles.pop()
        return reading(fn)

    monkeypatch.setattr(database, "read_now", read_now)
    clock, stopping = TestClock(), asyncio.Event()
    watch = asyncio.create_task(watch_ownership(database, clock, stopping))
    try:
        await _a_look(clock)
        assert not watch.done(), "the disk was full"
        await _a_look(clock)
        assert not stopping.is_set(), "nobody else is there"
        newer = Database.open(tmp_path / "lodger.db", clock=HandClock())
        await _a_look(clock)
        await asyncio.wait_for(watch, LIMIT_S)
        assert stopping.is_set()
        await newer.aclose()
    finally:
        watch.cancel()
        await database.aclose()


async def _a_look(clock: TestClock) -> None:
    """Let the watch sleep, wake it, and let it look."""
    while not clock.sleeping:  # noqa: ASYNC110 - the condition is the watch's own sleep
        await asyncio.sleep(0)
    clock.advance(LOOK_EVERY_S)
    for _ in range(3):
        await asyncio.sleep(0)
