"""Stored events of a conversation: numbers never repeat, and a client resumes from its cursor.

    reserve_numbers(connection, key, count) -> int        the last number of the block; the first is that - count + 1
    insert(connection, key, rows)                         for `write_soon`; rows outside a reserved block are refused
    was_stored(connection, key, number) -> bool           whether a row ended with that event, also if forgotten since
    after(connection, key, number, limit) -> tuple[EventRow, ...]     oldest first
    newest(connection, key, limit) -> tuple[EventRow, ...]            oldest first
    keep_newest(connection, key, rows)                    forget all but the newest rows of a conversation
    forget_before(connection, before) -> bool             forget what is older, of every conversation, a part at a time
    forgotten(connection, key) -> int                     the greatest number that was forgotten; 0 for none

A block is committed before one of its numbers is used. After a crash numbering goes on behind the block
(`ConversationState.reserved_event_number`), so numbers may skip and never repeat.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lodger_daemon.clock import WallTime
from lodger_daemon.identity import ConversationKey
from lodger_daemon.store import conversation_rows
from lodger_daemon.store.errors import StateConflict

FORGET_AT_ONCE: Final = 5_000
"""Rows of one transaction. Measured: 45 to 80 ms on a busy machine, in which no other write goes on."""


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


def reserved_up_to(connection: sqlite3.Connection, key: ConversationKey) -> int:
    """The last number of the latest block. Raises: UnknownRow."""
    row = connection.execute(
        "SELECT reserved_event_number FROM conversations WHERE number = ?",
        (conversation_rows.required(connection, key),),
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


def was_stored(connection: sqlite3.Connection, key: ConversationKey, number: int) -> bool:
    row = connection.execute(
        "SELECT ?2 <= forgotten_event_number OR EXISTS (SELECT 1 FROM events WHERE conversation = ?1 AND number = ?2) "
        "FROM conversations WHERE number = ?1",
        (conversation_rows.number_of(connection, key), number),
    ).fetchone()
    return row is not None and bool(row[0])


def after(connection: sqlite3.Connection, key: ConversationKey, number: int, limit: int = 1000) -> tuple[EventRow, ...]:
    rows = connection.execute(
        "SELECT number, at, kind, payload FROM events WHERE conversation = ? AND number > ? ORDER BY number LIMIT ?",
        (conversation_rows.number_of(connection, key), number, limit),
    )
    return tuple(EventRow(*row) for row in rows)


def newest(connection: sqlite3.Connection, key: ConversationKey, limit: int) -> tuple[EventRow, ...]:
    rows = connection.execute(
        "SELECT number, at, kind, payload FROM events WHERE conversation = ? ORDER BY number DESC LIMIT ?",
        (conversation_rows.number_of(connection, key), limit),
    ).fetchall()
    return tuple(EventRow(*row) for row in reversed(rows))


def keep_newest(connection: sqlite3.Connection, key: ConversationKey, rows: int) -> None:
    conversation = conversation_rows.required(connection, key)
    first_to_go = connection.execute(
        "SELECT number FROM events WHERE conversation = ? ORDER BY number DESC LIMIT 1 OFFSET ?", (conversation, rows)
    ).fetchone()
    if first_to_go is not None:
        _forget(connection, conversation, first_to_go[0])


def forget_before(connection: sqlite3.Connection, before: WallTime) -> bool:
    """At most `FORGET_AT_ONCE` rows of all conversations together. Whether there may be more to forget."""
    left = FORGET_AT_ONCE
    for (conversation,) in connection.execute("SELECT number FROM conversations").fetchall():
        oldest = connection.execute(
            "SELECT number, at FROM events WHERE conversation = ? ORDER BY number LIMIT 1", (conversation,)
        ).fetchone()
        if oldest is None or oldest[1] >= before:
            continue
        last = connection.execute(
            "SELECT MAX(number) FROM (SELECT number, at FROM events WHERE conversation = ? ORDER BY number LIMIT ?) "
            "WHERE at < ?",
            (conversation, left, before),
        ).fetchone()
        left -= _forget(connection, conversation, last[0])
        if left <= 0:
            return True
    return False


def forgotten(connection: sqlite3.Connection, key: ConversationKey) -> int:
    """Whoever has seen less than this number has a gap."""
    row = connection.execute(
        "SELECT forgotten_event_number FROM conversations WHERE number = ?",
        (conversation_rows.number_of(connection, key),),
    ).fetchone()
    return int(row[0]) if row is not None else 0


def _forget(connection: sqlite3.Connection, conversation: int, up_to: int) -> int:
    """How many rows went."""
    gone = connection.execute("DELETE FROM events WHERE conversation = ? AND number <= ?", (conversation, up_to))
    connection.execute(
        "UPDATE conversations SET forgotten_event_number = MAX(forgotten_event_number, ?) WHERE number = ?",
        (up_to, conversation),
    )
    return gone.rowcount
