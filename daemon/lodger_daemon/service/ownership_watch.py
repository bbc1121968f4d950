"""A daemon that has been replaced (it slept, another one started) stops by itself."""

import asyncio
import logging
from typing import Final

from lodger_daemon.clock import Clock
from lodger_daemon.store.database import Database
from lodger_daemon.store.errors import OwnershipLost, StoreError
from lodger_daemon.store.ownership import check_epoch

LOOK_EVERY_S: Final = 5.0
"""Every write is fenced anyway; this only bounds how long a replaced daemon keeps its sockets."""

_LOG: Final = logging.getLogger(__name__)


async def watch_ownership(database: Database, clock: Clock, stopping: asyncio.Event) -> None:
    """Until cancelled; sets `stopping` when another daemon owns the store."""
    while True:
        await clock.sleep(LOOK_EVERY_S)
        try:
            database.read_now(lambda connection: check_epoch(connection, database.epoch))
        except OwnershipLost:
            _LOG.warning("another daemon has taken over this state folder; stopping")
            stopping.set()
            return
        except StoreError as error:
            # A full or busy disk says nothing of the owner, and every write asks again.
            _LOG.debug("the owner of this state folder could not be read: %s", error)
