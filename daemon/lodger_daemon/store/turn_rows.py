"""Turns: from a reserved batch of input to one stop reason.

start(connection, key, turn_id, cause, now)            raises StateConflict when a turn is active there
finish(connection, turn_id, stop_reason, now, run_id=None, error=None)     raises StateConflict when not active
active(connection, key) -> TurnRow | None
all_active(connection) -> tuple[TurnRow, ...]          what a restart has to take up again
get(connection, turn_id) -> TurnRow | None
latest_with_calls(connection, key) -> TurnRow | None

`finish` also answers the input that the turn admitted. The schema lets a turn end only when nothing else of it is open:
input it reserved without admitting is released, its run has ended, its tool calls are finished in the journal (as
UNKNOWN if need be), its questions are settled. Do these first, in the same transaction; otherwise `finish` raises
ConstraintViolated with words that name what is open.
"""

import sqlite3
from dataclasses import dataclass
from typing import Any, Literal

from lodger_daemon.clock import WallTime
from lodger_daemon.identity import AgentId, ConversationId, ConversationKey, RunId, TurnId
from lodger_daemon.store import conversation_rows, inbox_rows
from lodger_daemon.store.errors import StateConflict
from lodger_daemon.store.json_column import storable
from lodger_daemon.turns.core.stop_reasons import StopReason

_SELECT = (
    "SELECT v.agent_id, v.conversation_id, t.turn_id, t.cause, t.status, t.stop_reason, t.run_id, t.error, "
    "t.started_at, t.ended_at FROM turns t JOIN conversations v ON v.number = t.conversation"
)


@dataclass(frozen=True, slots=True)
class TurnRow:
    conversation: ConversationKey
    turn_id: TurnId
    cause: str
    """Why it began, such as `message`, `queue`, `recovery`."""
    status: Literal["active", "finished"]
    stop_reason: StopReason | None
    run_id: RunId | None
    """The last run, once finished."""
    error: str | None
    started_at: WallTime
    ended_at: WallTime | None


def start(connection: sqlite3.Connection, key: ConversationKey, turn_id: TurnId, cause: str, now: WallTime) -> None:
    """Makes the conversation if it is new. Raises: StateConflict."""
    conversation = conversation_rows.ensure(connection, key, now)
    try:
        connection.execute(
            "INSERT INTO turns (turn_id, conversation, cause, status, started_at) VALUES (?, ?, ?, 'active', ?)",
            (turn_id, conversation, cause, now),
        )
    except sqlite3.IntegrityError as error:
        if "turns.conversation" in str(error):
            raise StateConflict(f"{key} has an active turn already") from error
        raise


def finish(
    connection: sqlite3.Connection,
    turn_id: TurnId,
    stop_reason: StopReason,
    now: WallTime,
    run_id: RunId | None = None,
    error: str | None = None,
) -> None:
    """Also answers the input that the turn admitted.

    Raises:
        StateConflict: the turn is not active.
        ConstraintViolated: something of it is still open.
    """
    inbox_rows.answer(connection, turn_id, stop_reason.value, now)
    cursor = connection.execute(
        "UPDATE turns SET status = 'finished', stop_reason = ?, ended_at = ?, run_id = ?, error = ? "
        "WHERE turn_id = ? AND status = 'active'",
        (stop_reason, now, run_id, storable(error), turn_id),
    )
    if cursor.rowcount == 0:
        raise StateConflict(f"turn {turn_id} is not active")


def latest_with_calls(connection: sqlite3.Connection, key: ConversationKey) -> TurnRow | None:
    """The last one that ran any tool."""
    found = connection.execute(
        "SELECT r.turn_id FROM runs r JOIN conversations v ON v.number = r.conversation "
        "WHERE v.agent_id = ? AND v.conversation_id = ? AND EXISTS "
        "(SELECT 1 FROM journal j WHERE j.conversation = r.conversation AND j.run_id = r.run_id) "
        "ORDER BY r.started_at DESC, r.run_id DESC LIMIT 1",
        (key.agent_id, key.conversation_id),
    ).fetchone()
    return get(connection, TurnId(found[0])) if found else None


def active(connection: sqlite3.Connection, key: ConversationKey) -> TurnRow | None:
    row = connection.execute(
        f"{_SELECT} WHERE t.status = 'active' AND v.agent_id = ? AND v.conversation_id = ?",
        (key.agent_id, key.conversation_id),
    ).fetchone()
    return _from_row(row) if row else None


def all_active(connection: sqlite3.Connection) -> tuple[TurnRow, ...]:
    rows = connection.execute(f"{_SELECT} WHERE t.status = 'active' ORDER BY t.started_at, t.turn_id")
    return tuple(_from_row(row) for row in rows)


def get(connection: sqlite3.Connection, turn_id: TurnId) -> TurnRow | None:
    row = connection.execute(f"{_SELECT} WHERE t.turn_id = ?", (turn_id,)).fetchone()
    return _from_row(row) if row else None


def _from_row(row: tuple[Any, ...]) -> TurnRow:
    agent_id, conversation_id, turn_id, cause, status, stop_reason, run_id, error, started_at, ended_at = row
    return TurnRow(
        conversation=ConversationKey(AgentId(agent_id), ConversationId(conversation_id)),
        turn_id=turn_id,
        cause=cause,
        status=status,
        stop_reason=StopReason(stop_reason) if stop_reason is not None else None,
        run_id=run_id,
        error=error,
        started_at=started_at,
        ended_at=ended_at,
    )
