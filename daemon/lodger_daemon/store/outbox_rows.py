"""The outbox: what has to reach somebody at least once, with an id that lets them see it once.

put(connection, delivery_id, consumers, kind, payload, now, key=None) -> int      how many were new
undelivered(connection, consumer, limit=100) -> tuple[OutboxRow, ...]             oldest first
attempted(connection, delivery_id, consumer)
delivered(connection, delivery_id, consumer, now) -> bool                         False when it was, or is not there
prune(connection, delivered_before) -> int
"""

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass

from lodger_daemon.clock import WallTime
from lodger_daemon.identity import AgentId, ConversationId, ConversationKey
from lodger_daemon.store import conversation_rows
from lodger_daemon.store.json_column import from_column, to_column
from lodger_tools.json_value import Json


@dataclass(frozen=True, slots=True)
class OutboxRow:
    delivery_id: str
    consumer: str
    conversation: ConversationKey | None
    kind: str
    payload: Json
    attempts: int
    created_at: WallTime


def put(
    connection: sqlite3.Connection,
    delivery_id: str,
    consumers: Iterable[str],
    kind: str,
    payload: Json,
    now: WallTime,
    key: ConversationKey | None = None,
) -> int:
    """One row per consumer; what is there already stays as it is."""
    conversation = conversation_rows.required(connection, key) if key is not None else None
    text = to_column(payload)
    added = 0
    for consumer in consumers:
        added += connection.execute(
            "INSERT INTO outbox (delivery_id, consumer, conversation, kind, payload, created_at) "
            "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (delivery_id, consumer) DO NOTHING",
            (delivery_id, consumer, conversation, kind, text, now),
        ).rowcount
    return added


def undelivered(connection: sqlite3.Connection, consumer: str, limit: int = 100) -> tuple[OutboxRow, ...]:
    rows = connection.execute(
        "SELECT o.delivery_id, o.consumer, v.agent_id, v.conversation_id, o.kind, o.payload, o.attempts, o.created_at "
        "FROM outbox o LEFT JOIN conversations v ON v.number = o.conversation "
        "WHERE o.consumer = ? AND o.delivered_at IS NULL ORDER BY o.number LIMIT ?",
        (consumer, limit),
    )
    return tuple(
        OutboxRow(
            delivery_id=delivery_id,
            consumer=name,
            conversation=ConversationKey(AgentId(agent), ConversationId(conversation)) if agent is not None else None,
            kind=kind,
            payload=from_column(payload),
            attempts=attempts,
            created_at=created_at,
        )
        for delivery_id, name, agent, conversation, kind, payload, attempts, created_at in rows
    )


def attempted(connection: sqlite3.Connection, delivery_id: str, consumer: str) -> None:
    connection.execute(
        "UPDATE outbox SET attempts = attempts + 1 WHERE delivery_id = ? AND consumer = ?", (delivery_id, consumer)
    )


def delivered(connection: sqlite3.Connection, delivery_id: str, consumer: str, now: WallTime) -> bool:
    cursor = connection.execute(
        "UPDATE outbox SET delivered_at = ? WHERE delivery_id = ? AND consumer = ? AND delivered_at IS NULL",
        (now, delivery_id, consumer),
    )
    return cursor.rowcount == 1


def prune(connection: sqlite3.Connection, delivered_before: WallTime) -> int:
    """Forget what was delivered before that time; a consumer that asks again later may see it again."""
    return connection.execute("DELETE FROM outbox WHERE delivered_at < ?", (delivered_before,)).rowcount
