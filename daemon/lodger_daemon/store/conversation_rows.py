# ruff: noqa: S608 - only constants of this module are put into statements; values are always bound.
"""Conversations: what is known of each, and the state that outlives a turn.

    ensure(connection, key, now) -> int              make it if it is new; its number
    number_of(connection, key) -> int | None
    required(connection, key) -> int                 raises UnknownRow
    insert(connection, record) -> int                raises ConstraintViolated when the pair exists
    get(connection, key) -> ConversationRecord | None
    find(connection, conversation_id) -> ConversationRecord | None       by its id alone; `default` finds none
    newest(connection, agent_id | None, limit, hidden=True) -> tuple[ConversationRecord, ...]
    is_hidden(connection, key) -> bool
    is_taken(connection, conversation_id) -> bool
    keys(connection) -> tuple[ConversationKey, ...]
    folders(connection, limit) -> dict[ConversationKey, str]     those that have a folder of their own
    describe(connection, record)                     store summary, tags, model, hidden, archived_at, updated_at
    touch(connection, key, now)                      a message arrived
    state(connection, key) -> ConversationState      raises UnknownRow
    set_mode / set_cwd / bump_cwd_revision / set_system_prompt / set_toolset / set_shown_memory_commit

`in_context_message_ids` of a record read here is filled (it costs one row per message in context).
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lodger_daemon.clock import WallTime
from lodger_daemon.identity import DEFAULT_CONVERSATION, AgentId, ConversationId, ConversationKey
from lodger_daemon.store.errors import UnknownRow
from lodger_daemon.store.json_column import strings_from_column, to_column
from lodger_daemon.turns.contract import ConversationRecord
from lodger_tools.permissions.core.modes import Mode

_COLUMNS = (
    "number, agent_id, conversation_id, created_at, updated_at, last_message_at, summary, tags, "
    "archived_at, model, hidden"
)


_AGENT_IS_THERE = "agent_id NOT IN (SELECT agent_id FROM agents WHERE deleted_at IS NOT NULL)"


@dataclass(frozen=True, slots=True)
class ConversationState:
    """What a turn needs to know before it starts."""

    mode: Mode | None
    """None = the machine's default."""
    cwd: str | None
    """None = the agent's workspace."""
    cwd_revision: int
    system_prompt: str | None
    """As compiled; None before the first turn and after a request to recompile."""
    toolset: tuple[str, ...]
    shown_memory_commit: str | None
    """The commit of published memory that the model was last told of."""
    reserved_event_number: int
    """No event has a greater number. After a start this is where numbering goes on."""


def ensure(connection: sqlite3.Connection, key: ConversationKey, now: WallTime) -> int:
    number = number_of(connection, key)
    if number is not None:
        return number
    return insert(
        connection,
        ConversationRecord(
            key=key,
            created_at=now,
            updated_at=now,
            last_message_at=None,
            summary=None,
            tags=(),
            archived_at=None,
            model=None,
        ),
    )


def number_of(connection: sqlite3.Connection, key: ConversationKey) -> int | None:
    row = connection.execute(
        "SELECT number FROM conversations WHERE agent_id = ? AND conversation_id = ?",
        (key.agent_id, key.conversation_id),
    ).fetchone()
    return int(row[0]) if row else None


def required(connection: sqlite3.Connection, key: ConversationKey) -> int:
    number = number_of(connection, key)
    if number is None:
        raise UnknownRow(f"there is no conversation {key}")
    return number


def insert(connection: sqlite3.Connection, record: ConversationRecord) -> int:
    # Not RETURNING: with it SQLite looks through all child tables for rows that refer to the new one.
    cursor = connection.execute(
        "INSERT INTO conversations (agent_id, conversation_id, created_at, updated_at, last_message_at, summary, tags, "
        "archived_at, model, hidden) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            record.key.agent_id,
            record.key.conversation_id,
            record.created_at,
            record.updated_at,
            record.last_message_at,
            record.summary,
            to_column(record.tags),
            record.archived_at,
            record.model,
            record.hidden,
        ),
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def get(connection: sqlite3.Connection, key: ConversationKey) -> ConversationRecord | None:
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM conversations WHERE agent_id = ? AND conversation_id = ?",
        (key.agent_id, key.conversation_id),
    ).fetchone()
    return _record(connection, row) if row else None


def find(connection: sqlite3.Connection, conversation_id: str) -> ConversationRecord | None:
    """The oldest one with this id; ids other than `default` are random, so there is one."""
    if conversation_id == DEFAULT_CONVERSATION:
        return None
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM conversations WHERE conversation_id = ? AND {_AGENT_IS_THERE} ORDER BY number LIMIT 1",
        (conversation_id,),
    ).fetchone()
    return _record(connection, row) if row else None


def newest(
    connection: sqlite3.Connection, agent_id: AgentId | None, limit: int, hidden: bool = True
) -> tuple[ConversationRecord, ...]:
    """Last used first; hidden ones only if they are wanted too."""
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM conversations WHERE (?1 IS NULL OR agent_id = ?1) AND hidden <= ?3 "
        f"AND {_AGENT_IS_THERE} ORDER BY updated_at DESC, number DESC LIMIT ?2",
        (agent_id, limit, hidden),
    ).fetchall()
    return tuple(_record(connection, row) for row in rows)


def is_hidden(connection: sqlite3.Connection, key: ConversationKey) -> bool:
    row = connection.execute(
        "SELECT hidden FROM conversations WHERE agent_id = ? AND conversation_id = ?",
        (key.agent_id, key.conversation_id),
    ).fetchone()
    return bool(row and row[0])


def is_taken(connection: sqlite3.Connection, conversation_id: str) -> bool:
    """Whether any conversation of this machine, also of a deleted agent, has this id."""
    found = connection.execute(
        "SELECT 1 FROM conversations WHERE conversation_id = ? LIMIT 1", (conversation_id,)
    ).fetchone()
    return found is not None


def keys(connection: sqlite3.Connection) -> tuple[ConversationKey, ...]:
    rows = connection.execute("SELECT agent_id, conversation_id FROM conversations ORDER BY number")
    return tuple(ConversationKey(AgentId(agent), ConversationId(conversation)) for agent, conversation in rows)


def folders(connection: sqlite3.Connection, limit: int) -> dict[ConversationKey, str]:
    """Last used first."""
    rows = connection.execute(
        "SELECT agent_id, conversation_id, cwd FROM conversations WHERE cwd IS NOT NULL "
        "ORDER BY updated_at DESC, number DESC LIMIT ?",
        (limit,),
    )
    return {ConversationKey(AgentId(agent), ConversationId(conversation)): cwd for agent, conversation, cwd in rows}


def describe(connection: sqlite3.Connection, record: ConversationRecord) -> None:
    """Raises: UnknownRow."""
    _update(
        connection,
        record.key,
        "summary = ?, tags = ?, model = ?, hidden = ?, archived_at = ?, updated_at = ?",
        (
            record.summary,
            to_column(record.tags),
            record.model,
            record.hidden,
            record.archived_at,
            record.updated_at,
        ),
    )


def touch(connection: sqlite3.Connection, key: ConversationKey, now: WallTime) -> None:
    _update(connection, key, "last_message_at = ?, updated_at = ?", (now, now))


def state(connection: sqlite3.Connection, key: ConversationKey) -> ConversationState:
    """Raises: UnknownRow."""
    row = connection.execute(
        "SELECT mode, cwd, cwd_revision, system_prompt, toolset, shown_memory_commit, reserved_event_number "
        "FROM conversations WHERE agent_id = ? AND conversation_id = ?",
        (key.agent_id, key.conversation_id),
    ).fetchone()
    if row is None:
        raise UnknownRow(f"there is no conversation {key}")
    mode, cwd, cwd_revision, system_prompt, toolset, shown_memory_commit, reserved = row
    return ConversationState(
        mode=Mode(mode) if mode is not None else None,
        cwd=cwd,
        cwd_revision=cwd_revision,
        system_prompt=system_prompt,
        toolset=strings_from_column(toolset),
        shown_memory_commit=shown_memory_commit,
        reserved_event_number=reserved,
    )


def set_mode(connection: sqlite3.Connection, key: ConversationKey, mode: Mode | None) -> None:
    _update(connection, key, "mode = ?", (mode,))


def set_cwd(connection: sqlite3.Connection, key: ConversationKey, cwd: str | None) -> int:
    """Change the folder; the new revision."""
    _update(connection, key, "cwd = ?", (cwd,))
    return bump_cwd_revision(connection, key)


def bump_cwd_revision(connection: sqlite3.Connection, key: ConversationKey) -> int:
    """Tell clients that the folder was looked at again, changed or not."""
    row = connection.execute(
        "UPDATE conversations SET cwd_revision = cwd_revision + 1 WHERE agent_id = ? AND conversation_id = ? "
        "RETURNING cwd_revision",
        (key.agent_id, key.conversation_id),
    ).fetchone()
    if row is None:
        raise UnknownRow(f"there is no conversation {key}")
    return int(row[0])


def set_system_prompt(connection: sqlite3.Connection, key: ConversationKey, prompt: str | None) -> None:
    _update(connection, key, "system_prompt = ?", (prompt,))


def set_toolset(connection: sqlite3.Connection, key: ConversationKey, tool_names: Sequence[str]) -> None:
    _update(connection, key, "toolset = ?", (to_column(list(tool_names)),))


def set_shown_memory_commit(connection: sqlite3.Connection, key: ConversationKey, commit: str | None) -> None:
    _update(connection, key, "shown_memory_commit = ?", (commit,))


def _update(connection: sqlite3.Connection, key: ConversationKey, assignments: str, values: tuple[Any, ...]) -> None:
    cursor = connection.execute(
        f"UPDATE conversations SET {assignments} WHERE agent_id = ? AND conversation_id = ?",
        (*values, key.agent_id, key.conversation_id),
    )
    if cursor.rowcount == 0:
        raise UnknownRow(f"there is no conversation {key}")


def _record(connection: sqlite3.Connection, row: tuple[Any, ...]) -> ConversationRecord:
    number, agent_id, conversation_id, created, updated, last_message, summary, tags, archived, model, hidden = row
    ids = connection.execute(
        "SELECT m.message_id FROM in_context c JOIN messages m ON m.number = c.message "
        "WHERE c.conversation = ? ORDER BY c.position",
        (number,),
    )
    return ConversationRecord(
        key=ConversationKey(agent_id, conversation_id),
        created_at=created,
        updated_at=updated,
        last_message_at=last_message,
        summary=summary,
        tags=strings_from_column(tags),
        archived_at=archived,
        model=model,
        in_context_message_ids=tuple(message_id for (message_id,) in ids),
        hidden=bool(hidden),
    )
