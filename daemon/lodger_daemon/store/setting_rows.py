"""Small facts the daemon keeps for itself, as JSON by key. Settings of the person live in their own file.

get(connection, key) -> Json            None when there is none
put(connection, key, value, now)
remove(connection, key) -> bool
with_prefix(connection, prefix) -> dict[str, Json]
"""

import sqlite3

from lodger_daemon.clock import WallTime
from lodger_daemon.store.json_column import from_column, to_column
from lodger_tools.json_value import Json


def get(connection: sqlite3.Connection, key: str) -> Json:
    row = connection.execute("SELECT value FROM settings WHERE key = ?", (key,)).fetchone()
    return from_column(row[0]) if row else None


def put(connection: sqlite3.Connection, key: str, value: Json, now: WallTime) -> None:
    connection.execute(
        "INSERT INTO settings (key, value, updated_at) VALUES (?, ?, ?) "
        "ON CONFLICT (key) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at",
        (key, to_column(value), now),
    )


def remove(connection: sqlite3.Connection, key: str) -> bool:
    return connection.execute("DELETE FROM settings WHERE key = ?", (key,)).rowcount == 1


def with_prefix(connection: sqlite3.Connection, prefix: str) -> dict[str, Json]:
    rows = connection.execute(
        "SELECT key, value FROM settings WHERE substr(key, 1, ?) = ? ORDER BY key", (len(prefix), prefix)
    )
    return {key: from_column(value) for key, value in rows}
