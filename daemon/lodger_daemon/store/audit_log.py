"""Rows for the audit log from rooms that cannot wait for the store."""

import logging

from lodger_daemon.clock import Clock
from lodger_daemon.store import audit_rows
from lodger_daemon.store.database import Database
from lodger_tools.json_value import JsonObject

_LOG = logging.getLogger(__name__)


class AuditLog:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def note(self, actor: str, action: str, subject: str, detail: JsonObject) -> None:
        """Returns at once. The row is written soon, on a full disk as soon as there is room, and before the store is
        closed."""
        row = audit_rows.AuditRow(self._clock.wall(), actor, action, subject, detail)
        if not self._database.write_soon(lambda connection: audit_rows.record(connection, row)):
            _LOG.error("the audit log cannot be written: %s of %s is given up", action, subject)
