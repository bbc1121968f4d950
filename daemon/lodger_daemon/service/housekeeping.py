"""What is cleared away once an hour: delivered notices and old overflow files."""

import asyncio
import logging
from typing import Final

from lodger_daemon.clock import Clock, WallTime
from lodger_daemon.store import outbox_rows
from lodger_daemon.store.database import Database
from lodger_daemon.store.errors import StoreError
from lodger_tools.output.overflow import OverflowFolder

EVERY_S: Final = 3600.0
DELIVERED_KEPT_S: Final = 7 * 24 * 3600.0
"""Long enough to look up what a client was told last week."""

_LOG: Final = logging.getLogger(__name__)


async def keep_house(database: Database, overflow: OverflowFolder, clock: Clock) -> None:
    """Until cancelled. What cannot be cleared now is cleared an hour later."""
    while True:
        try:
            await asyncio.to_thread(overflow.clean)
            await _prune_notices(database, WallTime(clock.wall() - DELIVERED_KEPT_S))
        except (StoreError, OSError) as error:
            _LOG.warning("could not clear away old files and rows: %s", error)
        await clock.sleep(EVERY_S)


async def _prune_notices(database: Database, before: WallTime) -> None:
    await database.write(lambda connection: outbox_rows.prune(connection, before))
