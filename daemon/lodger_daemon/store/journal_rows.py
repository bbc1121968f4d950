"""The journal of effects: "started" is committed before a tool may act, "finished" after.

    start(connection, call, tool_name, arguments, arguments_digest, approval, now)   raises StateConflict if known
    finish(connection, call, outcome, now)                        raises StateConflict when not started or finished
    get(connection, call) -> JournalEntry | None
    unfinished(connection, key=None) -> tuple[JournalEntry, ...]   oldest first; after a restart: effect unknown

A call key is journalled once for ever, so a call can never be started twice.
"""

import sqlite3
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from lodger_daemon.clock import WallTime
from lodger_daemon.identity import AgentId, CallKey, ConversationId, ConversationKey, RunId, ToolCallId
from lodger_daemon.store import conversation_rows
from lodger_daemon.store.errors import StateConflict
from lodger_daemon.store.json_column import object_from_column, storable, to_column
from lodger_tools.json_value import JsonObject

_SELECT = (
    "SELECT v.agent_id, v.conversation_id, j.run_id, j.tool_call_id, j.tool_name, j.arguments, j.arguments_digest, "
    "j.approval, j.outcome_status, j.outcome_text, j.overflow_path, j.started_at, j.finished_at "
    "FROM journal j JOIN conversations v ON v.number = j.conversation"
)


class OutcomeStatus(StrEnum):
    SUCCESS = "success"
    ERROR = "error"
    INTERRUPTED = "interrupted"
    """The person stopped it; it may have had a part of its effect."""
    UNKNOWN = "unknown"
    """Nobody can say whether it had its effect. It is never repeated."""


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """`text` is the result as the model sees it: redacted and truncated."""

    status: OutcomeStatus
    text: str
    overflow_path: str | None = None


@dataclass(frozen=True, slots=True)
class JournalEntry:
    call: CallKey
    tool_name: str
    arguments: JsonObject
    """As executed."""
    arguments_digest: str
    approval: str
    """Why it was allowed to run: a rule, a mode, a person's answer."""
    outcome: CallOutcome | None
    """None while it runs, and after a crash in the middle of it."""
    started_at: WallTime
    finished_at: WallTime | None


def start(
    connection: sqlite3.Connection,
    call: CallKey,
    tool_name: str,
    arguments: JsonObject,
    arguments_digest: str,
    approval: str,
    now: WallTime,
) -> None:
    """Commit this before the call may have any effect. Raises: StateConflict, UnknownRow."""
    conversation = conversation_rows.required(connection, call.conversation)
    try:
        connection.execute(
            "INSERT INTO journal (conversation, run_id, tool_call_id, tool_name, arguments, arguments_digest, "
            "approval, status, started_at) VALUES (?, ?, ?, ?, ?, ?, ?, 'started', ?)",
            (
                conversation,
                call.run_id,
                call.tool_call_id,
                tool_name,
                to_column(arguments),
                arguments_digest,
                approval,
                now,
            ),
        )
    except sqlite3.IntegrityError as error:
        if "journal.tool_call_id" in str(error):
            raise StateConflict(f"the call {call} was started before") from error
        raise


def finish(connection: sqlite3.Connection, call: CallKey, outcome: CallOutcome, now: WallTime) -> None:
    """Raises: StateConflict."""
    cursor = connection.execute(
        "UPDATE journal SET status = 'finished', outcome_status = ?, outcome_text = ?, overflow_path = ?, "
        "finished_at = ? WHERE conversation = ? AND run_id = ? AND tool_call_id = ? AND status = 'started'",
        (
            outcome.status,
            storable(outcome.text),
            outcome.overflow_path,
            now,
            conversation_rows.number_of(connection, call.conversation),
            call.run_id,
            call.tool_call_id,
        ),
    )
    if cursor.rowcount == 0:
        raise StateConflict(f"the call {call} is not running")


def get(connection: sqlite3.Connection, call: CallKey) -> JournalEntry | None:
    row = connection.execute(
        f"{_SELECT} WHERE j.conversation = ? AND j.run_id = ? AND j.tool_call_id = ?",
        (conversation_rows.number_of(connection, call.conversation), call.run_id, call.tool_call_id),
    ).fetchone()
    return _from_row(row) if row else None


def unfinished(connection: sqlite3.Connection, key: ConversationKey | None = None) -> tuple[JournalEntry, ...]:
    """Started calls without an outcome, of one conversation or of all, oldest first."""
    if key is None:
        rows = connection.execute(f"{_SELECT} WHERE j.status = 'started' ORDER BY j.started_at, j.tool_call_id")
    else:
        rows = connection.execute(
            f"{_SELECT} WHERE j.status = 'started' AND j.conversation = ? ORDER BY j.started_at, j.tool_call_id",
            (conversation_rows.number_of(connection, key),),
        )
    return tuple(_from_row(row) for row in rows)


def _from_row(row: tuple[Any, ...]) -> JournalEntry:
    agent_id, conversation_id, run_id, call_id, tool, arguments, digest, approval, status, text, path, began, ended = (
        row
    )
    key = ConversationKey(AgentId(agent_id), ConversationId(conversation_id))
    return JournalEntry(
        call=CallKey(key, RunId(run_id), ToolCallId(call_id)),
        tool_name=tool,
        arguments=object_from_column(arguments),
        arguments_digest=digest,
        approval=approval,
        outcome=CallOutcome(OutcomeStatus(status), text, path) if status is not None else None,
        started_at=began,
        finished_at=ended,
    )
