# ruff: noqa: S608 - only constants of this module are put into statements; values are always bound.
"""Background writers of memory, and how far each kind of them has read an agent's transcript.

    begin(connection, writer)                          raises ConstraintViolated when one of its kind is open
    get(connection, writer_id) -> Writer | None
    change(connection, writer, old_state)              raises StateConflict when it is in another state
    open_ones(connection) -> tuple[Writer, ...]        oldest first
    unsettled(connection) -> tuple[Writer, ...]        open or kept, of all agents; oldest first
    of_agent(connection, agent_id, limit) -> tuple[Writer, ...]      latest first
    kept(connection, agent_id, kind) -> tuple[Writer, ...]           ended, but may still be merged; oldest first
    endings(connection, agent_id, kind) -> tuple[Ending, ...]        of the latest that began first
    mark(connection, agent_id, kind) -> int            the number of the last message that counts as read
    forget(connection, before) -> int                  those that ended long ago and left nothing to merge

The mark moves in the same write as the state that moves it, and only for `merged` and `unchanged`.
"""

import sqlite3
from typing import Any, Final

from lodger_daemon.clock import WallTime
from lodger_daemon.identity import AgentId
from lodger_daemon.memory.core.writers import (
    CONSUMING,
    KEPT,
    OPEN,
    Ending,
    TranscriptPart,
    Writer,
    WriterId,
    WriterKind,
    WriterState,
)
from lodger_daemon.store.errors import StateConflict
from lodger_daemon.store.json_column import storable, strings_from_column, to_column

_LEGAL_STEPS: Final = (
    "'created>running', 'created>abandoned', 'running>finished', 'running>rescued', 'running>abandoned', "
    "'finished>merging', 'finished>unchanged', 'finished>rescued', 'finished>abandoned', 'merging>merged', "
    "'merging>conflicted', 'merging>rescued', 'conflicted>merging', 'conflicted>abandoned', 'rescued>merging', "
    "'rescued>abandoned'"
)

MEMORY_WRITER_STATEMENTS: Final = (
    """
CREATE TABLE memory_writers (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    writer_id TEXT NOT NULL UNIQUE CHECK (writer_id <> ''),
    agent_id TEXT NOT NULL CHECK (agent_id <> ''),
    kind TEXT NOT NULL CHECK (kind IN ('reflection', 'repair')),
    state TEXT NOT NULL CHECK (state IN ('created', 'running', 'finished', 'merging', 'merged', 'unchanged',
        'conflicted', 'rescued', 'abandoned')),
    reads_after INTEGER CHECK (reads_after >= 0),
    reads_through INTEGER CHECK (reads_through >= reads_after),
    base TEXT,
    tip TEXT,
    head TEXT,
    paths TEXT NOT NULL CHECK (json_type(paths) = 'array'),
    reason TEXT NOT NULL,
    report TEXT NOT NULL,
    created_at REAL NOT NULL,
    ended_at REAL,
    CHECK ((reads_after IS NULL) = (reads_through IS NULL)),
    CHECK ((state IN ('created', 'running', 'finished', 'merging')) = (ended_at IS NULL)),
    CHECK (state NOT IN ('running', 'finished', 'merging', 'merged') OR base IS NOT NULL),
    CHECK (state NOT IN ('merging', 'merged', 'conflicted') OR tip IS NOT NULL),
    CHECK ((state = 'merged') = (head IS NOT NULL))
) STRICT
""",
    "CREATE UNIQUE INDEX one_open_writer ON memory_writers (agent_id, kind) "
    "WHERE state IN ('created', 'running', 'finished', 'merging')",
    "CREATE INDEX writers_of_agent ON memory_writers (agent_id, number)",
    "CREATE TRIGGER memory_writers_update_guard BEFORE UPDATE ON memory_writers "
    f"WHEN OLD.state <> NEW.state AND OLD.state || '>' || NEW.state NOT IN ({_LEGAL_STEPS}) "
    "BEGIN SELECT RAISE(ABORT, 'illegal: a writer cannot go from that state to this one'); END",
    """
CREATE TABLE transcript_marks (
    agent_id TEXT NOT NULL CHECK (agent_id <> ''),
    kind TEXT NOT NULL CHECK (kind IN ('reflection', 'repair')),
    through INTEGER NOT NULL CHECK (through >= 0),
    PRIMARY KEY (agent_id, kind)
) STRICT, WITHOUT ROWID
""",
    "CREATE TRIGGER transcript_marks_update_guard BEFORE UPDATE ON transcript_marks WHEN NEW.through < OLD.through "
    "BEGIN SELECT RAISE(ABORT, 'illegal: what was read stays read'); END",
)

_COLUMNS: Final = (
    "writer_id, agent_id, kind, state, reads_after, reads_through, base, tip, head, paths, reason, report, created_at, "
    "ended_at"
)
_SELECT: Final = f"SELECT {_COLUMNS} FROM memory_writers"
_LAST_ENDINGS: Final = 40
_MOST_SHOWN: Final = 100


def _listed(states: frozenset[WriterState]) -> str:
    return ", ".join(f"'{state}'" for state in sorted(states))


def begin(connection: sqlite3.Connection, writer: Writer) -> None:
    marks = ", ".join("?" * 14)
    connection.execute(f"INSERT INTO memory_writers ({_COLUMNS}) VALUES ({marks})", _values(writer))


def get(connection: sqlite3.Connection, writer_id: WriterId) -> Writer | None:
    row = connection.execute(f"{_SELECT} WHERE writer_id = ?", (writer_id,)).fetchone()
    return _from_row(row) if row else None


def change(connection: sqlite3.Connection, writer: Writer, old_state: WriterState) -> None:
    """Write the record as it is now; a state that counts the transcript as read moves the mark."""
    cursor = connection.execute(
        "UPDATE memory_writers SET state = ?, base = ?, tip = ?, head = ?, paths = ?, reason = ?, report = ?, "
        "ended_at = ? WHERE writer_id = ? AND state = ?",
        (
            writer.state.value,
            writer.base,
            writer.tip,
            writer.head,
            to_column(list(writer.paths)),
            storable(writer.reason),
            storable(writer.report),
            writer.ended_at,
            writer.id,
            old_state.value,
        ),
    )
    if cursor.rowcount == 0:
        raise StateConflict(f"the writer {writer.id} is not {old_state.value}")
    if writer.state in CONSUMING and writer.reads is not None:
        # Parts begin where the mark was, so no message is passed over.
        connection.execute(
            "INSERT INTO transcript_marks (agent_id, kind, through) VALUES (?, ?, ?) "
            "ON CONFLICT (agent_id, kind) DO UPDATE SET through = MAX(through, excluded.through)",
            (writer.agent_id, writer.kind.value, writer.reads.through),
        )


def open_ones(connection: sqlite3.Connection) -> tuple[Writer, ...]:
    return tuple(map(_from_row, connection.execute(f"{_SELECT} WHERE state IN ({_listed(OPEN)}) ORDER BY number")))


def unsettled(connection: sqlite3.Connection) -> tuple[Writer, ...]:
    rows = connection.execute(f"{_SELECT} WHERE state IN ({_listed(OPEN | KEPT)}) ORDER BY number LIMIT {_MOST_SHOWN}")
    return tuple(map(_from_row, rows))


def of_agent(connection: sqlite3.Connection, agent_id: AgentId, limit: int) -> tuple[Writer, ...]:
    rows = connection.execute(f"{_SELECT} WHERE agent_id = ? ORDER BY number DESC LIMIT ?", (agent_id, limit))
    return tuple(map(_from_row, rows))


def kept(connection: sqlite3.Connection, agent_id: AgentId, kind: WriterKind) -> tuple[Writer, ...]:
    rows = connection.execute(
        f"{_SELECT} WHERE agent_id = ? AND kind = ? AND state IN ({_listed(KEPT)}) ORDER BY number",
        (agent_id, kind.value),
    )
    return tuple(map(_from_row, rows))


def endings(connection: sqlite3.Connection, agent_id: AgentId, kind: WriterKind) -> tuple[Ending, ...]:
    rows = connection.execute(
        "SELECT state, ended_at FROM memory_writers WHERE agent_id = ? AND kind = ? AND ended_at IS NOT NULL "
        "ORDER BY number DESC LIMIT ?",
        (agent_id, kind.value, _LAST_ENDINGS),
    )
    return tuple(Ending(WriterState(state), WallTime(at)) for state, at in rows)


def mark(connection: sqlite3.Connection, agent_id: AgentId, kind: WriterKind) -> int:
    row = connection.execute(
        "SELECT through FROM transcript_marks WHERE agent_id = ? AND kind = ?", (agent_id, kind.value)
    ).fetchone()
    return int(row[0]) if row else 0


def forget(connection: sqlite3.Connection, before: WallTime) -> int:
    cursor = connection.execute(
        f"DELETE FROM memory_writers WHERE ended_at < ? AND state NOT IN ({_listed(KEPT)})", (before,)
    )
    return cursor.rowcount


def _values(writer: Writer) -> tuple[object, ...]:
    reads = writer.reads
    return (
        writer.id,
        writer.agent_id,
        writer.kind.value,
        writer.state.value,
        None if reads is None else reads.after,
        None if reads is None else reads.through,
        writer.base,
        writer.tip,
        writer.head,
        to_column(list(writer.paths)),
        storable(writer.reason),
        storable(writer.report),
        writer.created_at,
        writer.ended_at,
    )


def _from_row(row: tuple[Any, ...]) -> Writer:
    writer_id, agent_id, kind, state, after, through, base, tip, head, paths, reason, report, created_at, ended_at = row
    return Writer(
        id=WriterId(writer_id),
        agent_id=AgentId(agent_id),
        kind=WriterKind(kind),
        state=WriterState(state),
        created_at=WallTime(created_at),
        reads=None if after is None else TranscriptPart(after, through),
        base=base,
        tip=tip,
        head=head,
        paths=strings_from_column(paths),
        reason=reason,
        report=report,
        ended_at=None if ended_at is None else WallTime(ended_at),
    )
