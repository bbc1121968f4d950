# ruff: noqa: S608 - only constants of this module are put into statements; values are always bound.
"""The transcript: append-only rows, and the list of those the model sees.

    append(connection, key, message, in_context=True) -> StoredMessage
    compact(connection, key, summary, kept) -> StoredMessage    append the summary, make `(summary, *kept)` the view
    replace_in_context(connection, key, message_ids)
    in_context(connection, key) -> tuple[StoredMessage, ...]
    get(connection, message_id) -> StoredMessage | None
    get_of_agent(connection, agent_id, message_id) -> StoredMessage | None
    page(connection, key, limit, descending, before, after) -> tuple[StoredMessage, ...]
    result_of(connection, call) -> StoredMessage | None           the one result of a tool call
    numbered_after(connection, number, limit) -> tuple[NumberedMessage, ...]      of all conversations, oldest first
    numbered_of_agent(connection, agent_id, number, limit)        as that, of one agent's conversations
    id_of_number(connection, number) -> MessageId | None

Appending costs the same in a long conversation as in a short one. A call has at most one result; a second one raises
StateConflict. Nothing is ever rewritten: the schema refuses.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from lodger_daemon.clock import WallTime
from lodger_daemon.identity import (
    AgentId,
    CallKey,
    ConversationId,
    ConversationKey,
    MessageId,
    RunId,
    ToolCallId,
    TurnId,
)
from lodger_daemon.store import conversation_rows
from lodger_daemon.store.errors import StateConflict, UnknownRow
from lodger_daemon.store.json_column import from_column, to_column
from lodger_tools.json_value import Json

_COLUMNS = "m.message_id, m.kind, m.content, m.created_at, m.otid, m.run_id, m.turn_id, m.tool_call_id, m.sequence"


class MessageKind(StrEnum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    """The result of one tool call; has `run_id` (the run that asked for it) and `tool_call_id`."""
    SUMMARY = "summary"
    """What compaction puts in the place of older messages."""


@dataclass(frozen=True, slots=True)
class NewMessage:
    message_id: MessageId
    kind: MessageKind
    content: Json
    """Whatever the backend stores of it; the store does not look inside."""
    created_at: WallTime
    otid: str | None = None
    run_id: RunId | None = None
    turn_id: TurnId | None = None
    tool_call_id: ToolCallId | None = None


@dataclass(frozen=True, slots=True)
class StoredMessage(NewMessage):
    sequence: int = 0
    """1, 2, 3 … within the conversation, without gaps."""


@dataclass(frozen=True, slots=True)
class NumberedMessage:
    """A message with its place among those of all conversations."""

    number: int
    key: ConversationKey
    message: StoredMessage


def append(
    connection: sqlite3.Connection, key: ConversationKey, message: NewMessage, in_context: bool = True
) -> StoredMessage:
    """Raises: UnknownRow for an unknown conversation, StateConflict for a second result of one call."""
    conversation = conversation_rows.required(connection, key)
    number, sequence = _insert(connection, conversation, message)
    if in_context:
        connection.execute(
            "INSERT INTO in_context (conversation, position, message) VALUES "
            "(?1, (SELECT COALESCE(MAX(position), 0) + 1 FROM in_context WHERE conversation = ?1), ?2)",
            (conversation, number),
        )
    return _stored(message, sequence)


def compact(
    connection: sqlite3.Connection, key: ConversationKey, summary: NewMessage, kept: Sequence[MessageId]
) -> StoredMessage:
    """Append the summary and make it, followed by `kept`, what the model sees. One change, whole or not at all."""
    stored = append(connection, key, summary, in_context=False)
    replace_in_context(connection, key, (summary.message_id, *kept))
    return stored


def replace_in_context(connection: sqlite3.Connection, key: ConversationKey, message_ids: Sequence[MessageId]) -> None:
    """Raises: UnknownRow for an id that is no message of this conversation."""
    conversation = conversation_rows.required(connection, key)
    connection.execute("DELETE FROM in_context WHERE conversation = ?", (conversation,))
    for position, message_id in enumerate(message_ids, start=1):
        cursor = connection.execute(
            "INSERT INTO in_context (conversation, position, message) "
            "SELECT conversation, ?, number FROM messages WHERE message_id = ? AND conversation = ?",
            (position, message_id, conversation),
        )
        if cursor.rowcount == 0:
            raise UnknownRow(f"{key} has no message {message_id}")


def in_context(connection: sqlite3.Connection, key: ConversationKey) -> tuple[StoredMessage, ...]:
    """What the model sees, in order; empty for an unknown conversation."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM conversations v JOIN in_context c ON c.conversation = v.number "
        "JOIN messages m ON m.number = c.message WHERE v.agent_id = ? AND v.conversation_id = ? ORDER BY c.position",
        (key.agent_id, key.conversation_id),
    )
    return tuple(_from_row(row) for row in rows)


def get(connection: sqlite3.Connection, message_id: MessageId) -> StoredMessage | None:
    row = connection.execute(f"SELECT {_COLUMNS} FROM messages m WHERE m.message_id = ?", (message_id,)).fetchone()
    return _from_row(row) if row else None


def get_of_agent(connection: sqlite3.Connection, agent_id: AgentId, message_id: MessageId) -> StoredMessage | None:
    """The message, if it belongs to a conversation of this agent."""
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM messages m JOIN conversations v ON v.number = m.conversation "
        "WHERE m.message_id = ? AND v.agent_id = ?",
        (message_id, agent_id),
    ).fetchone()
    return _from_row(row) if row else None


def page(
    connection: sqlite3.Connection,
    key: ConversationKey,
    limit: int,
    descending: bool = True,
    before: MessageId | None = None,
    after: MessageId | None = None,
) -> tuple[StoredMessage, ...]:
    """Part of the whole transcript: older than `before`, newer than `after` (ids; one that is not there ends in
    nothing), in the order asked for. Empty for an unknown conversation."""
    number = conversation_rows.number_of(connection, key)
    if number is None:
        return ()
    order = "DESC" if descending else "ASC"
    conditions, values = ["m.conversation = ?"], [number]
    for comparison, message_id in (("<", before), (">", after)):
        if message_id is not None:
            stored = get(connection, message_id)
            if stored is None:
                return ()
            conditions.append(f"m.sequence {comparison} ?")
            values.append(stored.sequence)
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM messages m WHERE {' AND '.join(conditions)} ORDER BY m.sequence {order} LIMIT ?",
        (*values, limit),
    )
    return tuple(_from_row(row) for row in rows)


def result_of(connection: sqlite3.Connection, call: CallKey) -> StoredMessage | None:
    number = conversation_rows.number_of(connection, call.conversation)
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM messages m "
        "WHERE m.conversation = ? AND m.run_id = ? AND m.tool_call_id = ? AND m.kind = 'tool'",
        (number, call.run_id, call.tool_call_id),
    ).fetchone()
    return _from_row(row) if row else None


def numbered_after(connection: sqlite3.Connection, number: int, limit: int) -> tuple[NumberedMessage, ...]:
    """Numbers grow with each message and are never used again, since no message is ever taken away."""
    return _numbered(connection, "m.number > ?", (number, limit))


def numbered_of_agent(
    connection: sqlite3.Connection, agent_id: AgentId, number: int, limit: int
) -> tuple[NumberedMessage, ...]:
    return _numbered(connection, "m.number > ? AND v.agent_id = ?", (number, agent_id, limit))


def _numbered(
    connection: sqlite3.Connection, condition: str, values: tuple[object, ...]
) -> tuple[NumberedMessage, ...]:
    rows = connection.execute(
        f"SELECT m.number, v.agent_id, v.conversation_id, {_COLUMNS} FROM messages m "
        f"JOIN conversations v ON v.number = m.conversation WHERE {condition} ORDER BY m.number LIMIT ?",
        values,
    )
    return tuple(
        NumberedMessage(found, ConversationKey(AgentId(agent_id), ConversationId(conversation_id)), _from_row(row))
        for found, agent_id, conversation_id, *row in rows
    )


def id_of_number(connection: sqlite3.Connection, number: int) -> MessageId | None:
    row = connection.execute("SELECT message_id FROM messages WHERE number = ?", (number,)).fetchone()
    return MessageId(row[0]) if row else None


def _insert(connection: sqlite3.Connection, conversation: int, message: NewMessage) -> tuple[int, int]:
    sequence = connection.execute(
        "SELECT COALESCE(MAX(sequence), 0) + 1 FROM messages WHERE conversation = ?", (conversation,)
    ).fetchone()[0]
    try:
        # Not RETURNING: with it SQLite looks through the whole child table for rows that refer to the new one.
        cursor = connection.execute(
            "INSERT INTO messages (message_id, conversation, sequence, kind, content, otid, run_id, turn_id, "
            "tool_call_id, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                message.message_id,
                conversation,
                sequence,
                message.kind,
                to_column(message.content),
                message.otid,
                message.run_id,
                message.turn_id,
                message.tool_call_id,
                message.created_at,
            ),
        )
    except sqlite3.IntegrityError as error:
        if "messages.tool_call_id" in str(error):
            raise StateConflict(f"tool call {message.tool_call_id} of {message.run_id} has a result already") from error
        raise
    assert cursor.lastrowid is not None
    return cursor.lastrowid, sequence


def _stored(message: NewMessage, sequence: int) -> StoredMessage:
    return StoredMessage(
        message_id=message.message_id,
        kind=message.kind,
        content=message.content,
        created_at=message.created_at,
        otid=message.otid,
        run_id=message.run_id,
        turn_id=message.turn_id,
        tool_call_id=message.tool_call_id,
        sequence=sequence,
    )


def _from_row(row: Sequence[Any]) -> StoredMessage:
    message_id, kind, content, created_at, otid, run_id, turn_id, tool_call_id, sequence = row
    return StoredMessage(
        message_id=message_id,
        kind=MessageKind(kind),
        content=from_column(content),
        created_at=created_at,
        otid=otid,
        run_id=run_id,
        turn_id=turn_id,
        tool_call_id=tool_call_id,
        sequence=sequence,
    )
