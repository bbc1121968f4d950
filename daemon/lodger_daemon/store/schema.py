"""The steps that make a database of Lodger's, oldest first, and how a file is brought up to date.

A step that has been released is never edited: the next change is a new step. `PRAGMA user_version` counts the steps a
file has; it moves in the same transaction as the step, so a crash leaves a file at one whole version.
"""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lodger_daemon.store.audit_rows import AUDIT_PRUNING
from lodger_daemon.store.errors import StoreTooNew
from lodger_daemon.store.memory_writer_rows import MEMORY_WRITER_STATEMENTS
from lodger_daemon.store.schema_first import FIRST_STATEMENTS
from lodger_daemon.store.spend_rows import SPEND_STATEMENTS
from lodger_daemon.store.task_rows import TASK_STATEMENTS

if TYPE_CHECKING:
    from sqlite_utils import Database as UtilsDatabase


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    statements: tuple[str, ...]


_DELETED_AGENTS: Final = ("ALTER TABLE agents ADD COLUMN deleted_at REAL",)
"""The transcript is append-only, so an agent that a person deletes is gone from every list and its rows stay."""

_TURN_SETTINGS: Final = (
    "ALTER TABLE inbox ADD COLUMN settings TEXT NOT NULL DEFAULT '{}' CHECK (json_type(settings) = 'object')",
)
"""What a client wished for the turn of its message, beside what has a column of its own."""

_FORGETTING: Final = (
    "ALTER TABLE conversations ADD COLUMN forgotten_event_number INTEGER NOT NULL DEFAULT 0 "
    "CHECK (forgotten_event_number >= 0)",
    "DROP TRIGGER inbox_delete_guard",
    "CREATE TRIGGER inbox_delete_guard BEFORE DELETE ON inbox WHEN OLD.status NOT IN ('answered', 'cancelled') "
    "BEGIN SELECT RAISE(ABORT, 'illegal: an accepted message is never forgotten'); END",
)
"""Old events and long settled inputs go; that events went is remembered, for whoever comes back after them."""

_SENDERS: Final = ("ALTER TABLE inbox ADD COLUMN sender TEXT NOT NULL DEFAULT ''",)
"""The hub's id of the device a message came from, so that it can be dropped when that device is revoked."""

STEPS: Final = (
    Step("first", FIRST_STATEMENTS),
    Step("spend", SPEND_STATEMENTS),
    Step("deleted agents", _DELETED_AGENTS),
    Step("turn settings", _TURN_SETTINGS),
    Step("senders", _SENDERS),
    Step("forgetting", _FORGETTING),
    Step("tasks", TASK_STATEMENTS),
    Step("memory writers", MEMORY_WRITER_STATEMENTS),
    Step("audit pruning", AUDIT_PRUNING),
)


def schema_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def bring_up_to_date(connection: sqlite3.Connection, path: Path, steps: Sequence[Step] = STEPS) -> None:
    """Apply the steps the file lacks; opening a current file costs one pragma.

    Raises: StoreTooNew.
    """
    found = schema_version(connection)
    if found > len(steps):
        raise StoreTooNew(path, found, len(steps))
    if found == 0:
        _create(connection, steps)
    elif found < len(steps):
        _migrate(connection, steps, found)


def _create(connection: sqlite3.Connection, steps: Sequence[Step]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in steps:
            for statement in step.statements:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(steps)}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _migrate(connection: sqlite3.Connection, steps: Sequence[Step], found: int) -> None:
    # Imported here only: it costs more than 100 ms and a current file never needs it.
    from sqlite_utils import Database as UtilsDatabase
    from sqlite_utils import Migrations

    migrations = Migrations("lodger")
    for version, step in enumerate(steps[found:], start=found + 1):
        migrations(name=step.name)(_step_function(step, version))
    migrations.apply(UtilsDatabase(connection))


def _step_function(step: Step, version: int) -> Callable[["UtilsDatabase"], None]:
    def apply(db: "UtilsDatabase") -> None:
        for statement in step.statements:
            db.conn.execute(statement)
        db.conn.execute(f"PRAGMA user_version = {version}")

    return apply
