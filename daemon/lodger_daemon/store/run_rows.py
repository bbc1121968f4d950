"""Runs: one model step each, with exactly one end.

    start(connection, key, run_id, turn_id, now, client_message_ids=())      raises RunActive
    end(connection, run_id, status, stop_reason, now, error=None)            raises StateConflict when it has ended
    active(connection, key) -> RunRow | None
    all_active(connection) -> tuple[RunRow, ...]
    recent(connection, key, limit=32) -> tuple[RunRow, ...]                  oldest first
    get(connection, run_id) -> RunRow | None

The schema allows one active run per conversation. A run that asks for tools ends as `completed` with the stop reason
`requires_approval`; the next step is another run.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from lodger_daemon.clock import WallTime
from lodger_daemon.identity import AgentId, ClientMessageId, ConversationId, ConversationKey, RunId, TurnId
from lodger_daemon.store import conversation_rows
from lodger_daemon.store.errors import RunActive, StateConflict
from lodger_daemon.store.json_column import storable, strings_from_column, to_column
from lodger_daemon.turns.core.stop_reasons import StopReason

_SELECT = (
    "SELECT v.agent_id, v.conversation_id, r.run_id, r.turn_id, r.status, r.stop_reason, r.error, "
    "r.client_message_ids, r.started_at, r.ended_at FROM runs r JOIN conversations v ON v.number = r.conversation"
)


class RunStatus(StrEnum):
    ACTIVE = "active"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    """The daemon ended in the middle of it."""


@dataclass(frozen=True, slots=True)
class RunRow:
    conversation: ConversationKey
    run_id: RunId
    turn_id: TurnId
    status: RunStatus
    stop_reason: StopReason | None
    error: str | None
    client_message_ids: tuple[ClientMessageId, ...]
    """The messages that caused it."""
    started_at: WallTime
    ended_at: WallTime | None


def start(
    connection: sqlite3.Connection,
    key: ConversationKey,
    run_id: RunId,
    turn_id: TurnId,
    now: WallTime,
    client_message_ids: Sequence[ClientMessageId] = (),
) -> None:
    """Raises: RunActive; UnknownRow for an unknown conversation."""
    conversation = conversation_rows.required(connection, key)
    try:
        connection.execute(
            "INSERT INTO runs (run_id, conversation, turn_id, status, client_message_ids, started_at) "
            "VALUES (?, ?, ?, 'active', ?, ?)",
            (run_id, conversation, turn_id, to_column(list(client_message_ids)), now),
        )
    except sqlite3.IntegrityError as error:
        if "runs.conversation" in str(error):
            raise RunActive(f"{key} has an active run already") from error
        raise


def end(
    connection: sqlite3.Connection,
    run_id: RunId,
    status: RunStatus,
    stop_reason: StopReason,
    now: WallTime,
    error: str | None = None,
) -> None:
    """`status` is any but ACTIVE. Raises: StateConflict."""
    cursor = connection.execute(
        "UPDATE runs SET status = ?, stop_reason = ?, ended_at = ?, error = ? WHERE run_id = ? AND status = 'active'",
        (status, stop_reason, now, storable(error), run_id),
    )
    if cursor.rowcount == 0:
        raise StateConflict(f"run {run_id} is not active")


def active(connection: sqlite3.Connection, key: ConversationKey) -> RunRow | None:
    row = connection.execute(
        f"{_SELECT} WHERE r.status = 'active' AND v.agent_id = ? AND v.conversation_id = ?",
        (key.agent_id, key.conversation_id),
    ).fetchone()
    return _from_row(row) if row else None


def all_active(connection: sqlite3.Connection) -> tuple[RunRow, ...]:
    rows = connection.execute(f"{_SELECT} WHERE r.status = 'active' ORDER BY r.started_at, r.run_id")
    return tuple(_from_row(row) for row in rows)


def recent(connection: sqlite3.Connection, key: ConversationKey, limit: int = 32) -> tuple[RunRow, ...]:
    rows = connection.execute(
        f"{_SELECT} WHERE v.agent_id = ? AND v.conversation_id = ? ORDER BY r.started_at DESC, r.run_id DESC LIMIT ?",
        (key.agent_id, key.conversation_id, limit),
    ).fetchall()
    return tuple(_from_row(row) for row in reversed(rows))


def get(connection: sqlite3.Connection, run_id: RunId) -> RunRow | None:
    row = connection.execute(f"{_SELECT} WHERE r.run_id = ?", (run_id,)).fetchone()
    return _from_row(row) if row else None


def _from_row(row: tuple[Any, ...]) -> RunRow:
    agent_id, conversation_id, run_id, turn_id, status, stop_reason, error, messages, started_at, ended_at = row
    return RunRow(
        conversation=ConversationKey(AgentId(agent_id), ConversationId(conversation_id)),
        run_id=run_id,
        turn_id=turn_id,
        status=RunStatus(status),
        stop_reason=StopReason(stop_reason) if stop_reason is not None else None,
        error=error,
        client_message_ids=tuple(ClientMessageId(text) for text in strings_from_column(messages)),
        started_at=started_at,
        ended_at=ended_at,
    )
