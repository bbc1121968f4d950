"""The audit log: who did what to which thing, for ever. Never holds a secret or the text of a message.

record(connection, row)
newest(connection, limit) -> tuple[AuditRow, ...]
"""

import sqlite3
from dataclasses import dataclass

from lodger_daemon.clock import WallTime
from lodger_daemon.store.json_column import object_from_column, to_column
from lodger_tools.json_value import JsonObject


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
