"""Stored events of a conversation: numbers never repeat, and a client resumes from its cursor.

    reserve_numbers(connection, key, count) -> int        the last number of the block; the first is that - count + 1
    insert(connection, key, rows)                         for `write_soon`; rows outside a reserved block are refused
    after(connection, key, number, limit) -> tuple[EventRow, ...]     oldest first
    prune(connection, key, keep_after) -> int             forget events up to that number

A block is committed before one of its numbers is used. After a crash numbering goes on behind the block
(`ConversationState.reserved_event_number`), so numbers may skip and never repeat.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from lodger_daemon.clock import WallTime
from lodger_daemon.identity import ConversationKey
from lodger_daemon.store import conversation_rows
from lodger_daemon.store.errors import StateConflict


@dataclass(frozen=True, slots=True)
class EventRow:
    number: int
    at: WallTime
    kind: str
    payload: str
    """JSON text; its meaning belongs to `turns/`."""


def reserve_numbers(connection: sqlite3.Connection, key: ConversationKey, count: int) -> int:
    """Raises: UnknownRow."""
    conversation = conversation_rows.required(connection, key)
    row = connection.execute(
        "UPDATE conversations SET reserved_event_number = reserved_event_number + ? WHERE number = ? "
        "RETURNING reserved_event_number",
        (count, conversation),
    ).fetchone()
    return int(row[0])


def insert(connection: sqlite3.Connection, key: ConversationKey, rows: Sequence[EventRow]) -> None:
    """Raises: UnknownRow, StateConflict for a number that was not reserved, ConstraintViolated for a repeated one."""
    conversation = conversation_rows.required(connection, key)
    reserved = connection.execute(
        "SELECT reserved_event_number FROM conversations WHERE number = ?", (conversation,)
    ).fetchone()[0]
    if rows and max(row.number for row in rows) > reserved:
        raise StateConflict(f"{key} has reserved event numbers up to {reserved} only")
    connection.executemany(
        "INSERT INTO events (conversation, number, at, kind, payload) VALUES (?, ?, ?, ?, ?)",
        [(conversation, row.number, row.at, row.kind, row.payload) for row in rows],
    )


def after(connection: sqlite3.Connection, key: ConversationKey, number: int, limit: int = 1000) -> tuple[EventRow, ...]:
    rows = connection.execute(
        "SELECT number, at, kind, payload FROM events WHERE conversation = ? AND number > ? ORDER BY number LIMIT ?",
        (conversation_rows.number_of(connection, key), number, limit),
    )
    return tuple(EventRow(*row) for row in rows)


def prune(connection: sqlite3.Connection, key: ConversationKey, keep_after: int) -> int:
    return connection.execute(
        "DELETE FROM events WHERE conversation = ? AND number <= ?",
        (conversation_rows.number_of(connection, key), keep_after),
    ).rowcount
