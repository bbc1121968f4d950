# ruff: noqa: S608 - only constants of this module are put into statements; values are always bound.
"""Agents. One that a person deleted is found by nothing here but `deleted`; what was said with it stays stored.

insert(connection, record)                       raises ConstraintViolated when the id exists
get(connection, agent_id) -> AgentRecord | None
all_agents(connection) -> tuple[AgentRecord, ...]     oldest first, hidden ones too
replace(connection, record)                      raises UnknownRow
run_completed(connection, agent_id, now)
at_work(connection, agent_id) -> bool            a turn goes on or a message waits in one of its conversations
delete(connection, agent_id, now) -> bool        False when there is none
deleted(connection, agent_id) -> bool
"""

import sqlite3
from typing import Any

from lodger_daemon.clock import WallTime
from lodger_daemon.identity import AgentId
from lodger_daemon.store.errors import UnknownRow
from lodger_daemon.store.json_column import strings_from_column, to_column
from lodger_daemon.turns.contract import AgentRecord

_COLUMNS = "agent_id, name, description, model, system, tags, hidden, created_at, updated_at, last_run_completion"


def insert(connection: sqlite3.Connection, record: AgentRecord) -> None:
    connection.execute(f"INSERT INTO agents ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", _values(record))


def get(connection: sqlite3.Connection, agent_id: AgentId) -> AgentRecord | None:
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM agents WHERE agent_id = ? AND deleted_at IS NULL", (agent_id,)
    ).fetchone()
    return _record(row) if row else None


def all_agents(connection: sqlite3.Connection) -> tuple[AgentRecord, ...]:
    rows = connection.execute(f"SELECT {_COLUMNS} FROM agents WHERE deleted_at IS NULL ORDER BY created_at, agent_id")
    return tuple(_record(row) for row in rows)


def replace(connection: sqlite3.Connection, record: AgentRecord) -> None:
    """Store every field of `record` but its id and `created_at`. Raises: UnknownRow."""
    cursor = connection.execute(
        "UPDATE agents SET name = ?, description = ?, model = ?, system = ?, tags = ?, hidden = ?, updated_at = ?, "
        "last_run_completion = ? WHERE agent_id = ? AND deleted_at IS NULL",
        (
            record.name,
            record.description,
            record.model,
            record.system,
            to_column(record.tags),
            record.hidden,
            record.updated_at,
            record.last_run_completion,
            record.id,
        ),
    )
    if cursor.rowcount == 0:
        raise UnknownRow(f"there is no agent {record.id}")


def run_completed(connection: sqlite3.Connection, agent_id: AgentId, now: WallTime) -> None:
    connection.execute("UPDATE agents SET last_run_completion = ? WHERE agent_id = ?", (now, agent_id))


def at_work(connection: sqlite3.Connection, agent_id: AgentId) -> bool:
    found = connection.execute(
        "SELECT 1 FROM conversations v WHERE v.agent_id = ? AND ("
        "EXISTS (SELECT 1 FROM turns WHERE conversation = v.number AND status = 'active') OR "
        "EXISTS (SELECT 1 FROM inbox WHERE conversation = v.number "
        "AND status IN ('accepted', 'parked', 'reserved', 'admitted'))) LIMIT 1",
        (agent_id,),
    ).fetchone()
    return found is not None


def delete(connection: sqlite3.Connection, agent_id: AgentId, now: WallTime) -> bool:
    cursor = connection.execute(
        "UPDATE agents SET deleted_at = ? WHERE agent_id = ? AND deleted_at IS NULL", (now, agent_id)
    )
    return cursor.rowcount > 0


def deleted(connection: sqlite3.Connection, agent_id: AgentId) -> bool:
    found = connection.execute(
        "SELECT 1 FROM agents WHERE agent_id = ? AND deleted_at IS NOT NULL", (agent_id,)
    ).fetchone()
    return found is not None


def _values(record: AgentRecord) -> tuple[Any, ...]:
    return (
        record.id,
        record.name,
        record.description,
        record.model,
        record.system,
        to_column(record.tags),
        record.hidden,
        record.created_at,
        record.updated_at,
        record.last_run_completion,
    )


def _record(row: tuple[Any, ...]) -> AgentRecord:
    agent_id, name, description, model, system, tags, hidden, created_at, updated_at, last_run = row
    return AgentRecord(
        id=agent_id,
        name=name,
        description=description,
        model=model,
        system=system,
        tags=strings_from_column(tags),
        hidden=bool(hidden),
        created_at=created_at,
        updated_at=updated_at,
        last_run_completion=last_run,
    )
