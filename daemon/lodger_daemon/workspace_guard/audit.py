"""What the guard put back and what a person allowed, in the audit log."""

from lodger_daemon.clock import Clock
from lodger_daemon.store import audit_rows
from lodger_daemon.store.database import Database


class GuardAudit:
    """Implements `Audit`: its rows are written soon."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    def note(self, agent_id: str, decision: str, workspace: str, what: str) -> None:
        row = audit_rows.AuditRow(self._clock.wall(), agent_id, f"git.{decision}", workspace, {"what": what})
        self._database.write_soon(lambda connection: audit_rows.record(connection, row))
