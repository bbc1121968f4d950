"""Rows for the audit log from rooms that cannot wait for the store."""

import asyncio
import logging
import sqlite3
from collections import deque
from functools import partial
from typing import Final

from lodger_daemon.clock import Clock
from lodger_daemon.store import audit_rows
from lodger_daemon.store.audit_rows import AuditRow
from lodger_daemon.store.database import Database
from lodger_daemon.store.errors import StoreError
from lodger_tools.json_value import JsonObject

WAITING_ROWS: Final = 1000
"""Beyond this the oldest are given up, and the log says so: a full disk must not fill memory too."""
AGAIN_AFTER_S: Final = 5.0

_LOG: Final = logging.getLogger(__name__)


def _record(row: AuditRow, connection: sqlite3.Connection) -> None:
    audit_rows.record(connection, row)


class AuditLog:
    """`run` is its one task."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._waiting: deque[AuditRow] = deque()
        self._noted = asyncio.Event()

    def note(self, actor: str, action: str, subject: str, detail: JsonObject) -> None:
        """Write this row soon. Returns at once."""
        if len(self._waiting) >= WAITING_ROWS:
            _LOG.error("the audit log cannot be written: %s of %s is given up", self._waiting[0].action, subject)
            self._waiting.popleft()
        self._waiting.append(AuditRow(self._clock.wall(), actor, action, subject, detail))
        self._noted.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._noted.wait()
            self._noted.clear()
            while self._waiting:
                row = self._waiting[0]
                try:
                    await self._database.write(partial(_record, row))
                except StoreError as error:
                    _LOG.error("the audit log cannot be written: %s", error)
                    await self._clock.sleep(AGAIN_AFTER_S)
                    continue
                if self._waiting and self._waiting[0] is row:
                    self._waiting.popleft()
