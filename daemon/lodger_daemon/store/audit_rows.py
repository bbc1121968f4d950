"""The audit log: who did what to which thing. Never holds a secret or the text of a message.

record(connection, row)
newest(connection, limit) -> tuple[AuditRow, ...]
prune(connection, before, keep_rows) -> bool
"""

import sqlite3
from dataclasses import dataclass
from typing import Final

from lodger_daemon.clock import WallTime
from lodger_daemon.store.json_column import object_from_column, to_column
from lodger_tools.json_value import JsonObject

PRUNE_AT_ONCE: Final = 1_000
"""In one commit, about 10 ms: messages are taken in between."""

AUDIT_PRUNING: Final = (
    "DROP TRIGGER audit_delete_guard",
    "CREATE TRIGGER audit_delete_guard BEFORE DELETE ON audit "
    # Without its newest row the table would give a number out a second time.
    "WHEN OLD.number = (SELECT MAX(number) FROM audit) OR OLD.number > (SELECT MIN(number) FROM audit) "
    "OR EXISTS (SELECT 1 FROM turns WHERE status = 'active' AND started_at <= OLD.at) "
    "BEGIN SELECT RAISE(ABORT, 'illegal: the audit log is append-only; its oldest rows go, none of an open turn'); "
    "END",
)


@dataclass(frozen=True, slots=True)
class AuditRow:
    at: WallTime
    actor: str
    """A client's name, `model`, or `daemon`."""
    action: str
    """Such as `question.allowed` or `rule.saved`."""
    subject: str
    detail: JsonObject


def record(connection: sqlite3.Connection, row: AuditRow) -> None:
    connection.execute(
        "INSERT INTO audit (at, actor, action, subject, detail) VALUES (?, ?, ?, ?, ?)",
        (row.at, row.actor, row.action, row.subject, to_column(row.detail)),
    )


def newest(connection: sqlite3.Connection, limit: int = 100) -> tuple[AuditRow, ...]:
    rows = connection.execute(
        "SELECT at, actor, action, subject, detail FROM audit ORDER BY number DESC LIMIT ?", (limit,)
    )
    return tuple(
        AuditRow(at, actor, action, subject, object_from_column(detail)) for at, actor, action, subject, detail in rows
    )


def prune(connection: sqlite3.Connection, before: WallTime, keep_rows: int) -> bool:
    """Forget the oldest rows: those from before that moment, and those beyond so many; at most `PRUNE_AT_ONCE`, and
    nothing since the oldest open turn began. Whether there may be more to forget.
    """
    newest_number = connection.execute("SELECT MAX(number) FROM audit").fetchone()[0]
    if newest_number is None:
        return False
    oldest = connection.execute("SELECT number, at FROM audit ORDER BY number LIMIT ?", (PRUNE_AT_ONCE,)).fetchall()
    open_since = connection.execute("SELECT MIN(started_at) FROM turns WHERE status = 'active'").fetchone()[0]
    last = 0
    for number, at in oldest:
        is_wanted = at >= before and number > newest_number - keep_rows
        if is_wanted or number == newest_number or (open_since is not None and at >= open_since):
            break
        last = number
    return connection.execute("DELETE FROM audit WHERE number <= ?", (last,)).rowcount == PRUNE_AT_ONCE
