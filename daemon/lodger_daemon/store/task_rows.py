"""Background tasks: on record before they start, their end on record before anybody is told of it.

    begin(connection, call, background, command, description, now) -> Task       the same task again for a known call
    get(connection, number) -> Task | None
    of_call(connection, call) -> Task | None
    running(connection) -> tuple[Task, ...]                       oldest first
    finish(connection, number, end)                               raises StateConflict when it has ended
    undelivered(connection) -> tuple[Task, ...]                   ended, its conversation does not know; oldest first
    count_notice(connection, number, notices)
    close(connection, number, now)                                its conversation knows
    forget(connection, before) -> int                             delivered long ago

Numbers are never given twice, so an old id never names a new process.
"""

import sqlite3
from typing import Any, Final

from lodger_daemon.clock import WallTime
from lodger_daemon.identity import AgentId, CallKey, ConversationId, ConversationKey, RunId, ToolCallId
from lodger_daemon.notifications.contract import Task, TaskEnd, TaskNumber, TaskStatus
from lodger_daemon.store import conversation_rows
from lodger_daemon.store.errors import StateConflict
from lodger_daemon.store.json_column import storable
from lodger_tools.box.contract import BoxKey, BoxProfile
from lodger_tools.toolbox_contract import BackgroundCall

TASK_STATEMENTS: Final = (
    """
CREATE TABLE tasks (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation INTEGER NOT NULL REFERENCES conversations (number),
    run_id TEXT NOT NULL,
    tool_call_id TEXT NOT NULL,
    workspace TEXT NOT NULL,
    profile TEXT NOT NULL,
    call_key TEXT NOT NULL,
    command TEXT NOT NULL,
    description TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'running' CHECK (status IN ('running', 'completed', 'failed', 'stopped', 'lost')),
    exit_code INTEGER,
    text TEXT NOT NULL DEFAULT '',
    overflow_path TEXT,
    started_at REAL NOT NULL,
    ended_at REAL,
    notices INTEGER NOT NULL DEFAULT 0 CHECK (notices >= 0),
    delivered_at REAL,
    UNIQUE (conversation, run_id, tool_call_id),
    CHECK ((status = 'running') = (ended_at IS NULL)),
    CHECK (delivered_at IS NULL OR ended_at IS NOT NULL)
) STRICT
""",
    "CREATE INDEX open_tasks ON tasks (number) WHERE delivered_at IS NULL",
    "CREATE TRIGGER tasks_update_guard BEFORE UPDATE OF status, exit_code, text, ended_at ON tasks "
    "WHEN OLD.status <> 'running' BEGIN SELECT RAISE(ABORT, 'illegal: an ended task stays as it is'); END",
    "CREATE TRIGGER tasks_delete_guard BEFORE DELETE ON tasks WHEN OLD.delivered_at IS NULL "
    "BEGIN SELECT RAISE(ABORT, 'illegal: a task is not forgotten before its end was told'); END",
)

_SELECT: Final = (
    "SELECT t.number, v.agent_id, v.conversation_id, t.run_id, t.tool_call_id, t.workspace, t.profile, t.call_key, "
    "t.command, t.description, t.status, t.exit_code, t.text, t.overflow_path, t.started_at, t.ended_at, t.notices "
    "FROM tasks t JOIN conversations v ON v.number = t.conversation"
)


def begin(
    connection: sqlite3.Connection,
    call: CallKey,
    background: BackgroundCall,
    command: str,
    description: str,
    now: WallTime,
) -> Task:
    """Commit this before the command may start. Raises: UnknownRow."""
    known = of_call(connection, call)
    if known is not None:
        return known
    box = background.box
    cursor = connection.execute(
        "INSERT INTO tasks (conversation, run_id, tool_call_id, workspace, profile, call_key, command, description, "
        "started_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            conversation_rows.required(connection, call.conversation),
            call.run_id,
            call.tool_call_id,
            box.workspace,
            box.profile.value,
            background.call_key,
            storable(command),
            storable(description),
            now,
        ),
    )
    assert cursor.lastrowid is not None
    return Task(TaskNumber(cursor.lastrowid), call, background, command, description, now, None, 0)


def get(connection: sqlite3.Connection, number: int) -> Task | None:
    row = connection.execute(f"{_SELECT} WHERE t.number = ?", (number,)).fetchone()
    return _from_row(row) if row else None


def of_call(connection: sqlite3.Connection, call: CallKey) -> Task | None:
    row = connection.execute(
        f"{_SELECT} WHERE t.conversation = ? AND t.run_id = ? AND t.tool_call_id = ?",
        (conversation_rows.number_of(connection, call.conversation), call.run_id, call.tool_call_id),
    ).fetchone()
    return _from_row(row) if row else None


def running(connection: sqlite3.Connection) -> tuple[Task, ...]:
    rows = connection.execute(f"{_SELECT} WHERE t.delivered_at IS NULL AND t.status = 'running' ORDER BY t.number")
    return tuple(map(_from_row, rows))


def finish(connection: sqlite3.Connection, number: TaskNumber, end: TaskEnd) -> None:
    """Raises: StateConflict."""
    cursor = connection.execute(
        "UPDATE tasks SET status = ?, exit_code = ?, text = ?, overflow_path = ?, ended_at = ? "
        "WHERE number = ? AND status = 'running'",
        (end.status.value, end.exit_code, storable(end.text), end.overflow_path, end.ended_at, number),
    )
    if cursor.rowcount == 0:
        raise StateConflict(f"the task {number} does not run")


def undelivered(connection: sqlite3.Connection) -> tuple[Task, ...]:
    """Without those of agents that a person has deleted: nobody is there to be told."""
    rows = connection.execute(
        f"{_SELECT} JOIN agents a ON a.agent_id = v.agent_id "
        "WHERE t.delivered_at IS NULL AND t.status <> 'running' AND a.deleted_at IS NULL ORDER BY t.number"
    )
    return tuple(map(_from_row, rows))


def count_notice(connection: sqlite3.Connection, number: TaskNumber, notices: int) -> None:
    connection.execute("UPDATE tasks SET notices = ? WHERE number = ?", (notices, number))


def close(connection: sqlite3.Connection, number: TaskNumber, now: WallTime) -> None:
    connection.execute("UPDATE tasks SET delivered_at = ? WHERE number = ? AND delivered_at IS NULL", (now, number))


def forget(connection: sqlite3.Connection, before: WallTime) -> int:
    return connection.execute("DELETE FROM tasks WHERE delivered_at < ?", (before,)).rowcount


def _from_row(row: tuple[Any, ...]) -> Task:
    number, agent_id, conversation_id, run_id, call_id, workspace, profile, call_key = row[:8]
    command, description, status, exit_code, text, path, started_at, ended_at, notices = row[8:]
    key = ConversationKey(AgentId(agent_id), ConversationId(conversation_id))
    end = None if ended_at is None else TaskEnd(TaskStatus(status), exit_code, text, path, WallTime(ended_at))
    return Task(
        number=TaskNumber(number),
        call=CallKey(key, RunId(run_id), ToolCallId(call_id)),
        background=BackgroundCall(BoxKey(agent_id, workspace, BoxProfile(profile)), call_key),
        command=command,
        description=description,
        started_at=WallTime(started_at),
        end=end,
        notices=notices,
    )
