"""What is cleared away once an hour: delivered notices, old events, old audit rows and old overflow files."""

import asyncio
import logging
from typing import Final

from lodger_daemon.clock import Clock, WallTime
from lodger_daemon.service.settings import AuditSettings
from lodger_daemon.store import audit_rows, event_rows, outbox_rows
from lodger_daemon.store.database import Database
from lodger_daemon.store.errors import StoreError
from lodger_tools.output.overflow import OverflowFolder

EVERY_S: Final = 3600.0
DELIVERED_KEPT_S: Final = 7 * 24 * 3600.0
"""Long enough to look up what a client was told last week."""

EVENTS_KEPT_S: Final = 14 * 24 * 3600.0
"""Whoever was away longer reads the transcript instead of what happened event by event."""

DAY_S: Final = 24 * 3600.0

_LOG: Final = logging.getLogger(__name__)


async def keep_house(database: Database, overflow: OverflowFolder, clock: Clock, audit: AuditSettings) -> None:
    """Until cancelled. What cannot be cleared now is cleared an hour later."""
    while True:
        try:
            await asyncio.to_thread(overflow.clean)
            now = clock.wall()
            await _prune_notices(database, WallTime(now - DELIVERED_KEPT_S))
            await _forget_events(database, WallTime(now - EVENTS_KEPT_S))
            await _prune_audit(database, WallTime(now - audit.keep_days * DAY_S), audit.keep_rows)
        except (StoreError, OSError) as error:
            _LOG.warning("could not clear away old files and rows: %s", error)
        await clock.sleep(EVERY_S)


async def _prune_notices(database: Database, before: WallTime) -> None:
    await database.write(lambda connection: outbox_rows.prune(connection, before))


async def _forget_events(database: Database, before: WallTime) -> None:
    # Each part is a commit of its own, so that messages are taken in between.
    while await database.write(lambda connection: event_rows.forget_before(connection, before)):
        pass


async def _prune_audit(database: Database, before: WallTime, keep_rows: int) -> None:
    while await database.write(lambda connection: audit_rows.prune(connection, before, keep_rows)):
        pass
