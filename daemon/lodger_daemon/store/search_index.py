# ruff: noqa: S608 - only constants of this module are put into statements; values are always bound.
"""The full-text index of all messages: a file of its own beside the database, made from it and made again when lost.

    index = SearchIndex.open(path)              a damaged file, or one of another form, is thrown away for an empty one
    index.last() -> (number, message_id)        up to where it goes; (0, "") when empty
    index.add(documents)                        one transaction; adding again what is there changes nothing
    index.find(match, filters, before, limit) -> tuple[Found, ...]      newest first
    index.clear()

Blocking, and used from one thread at a time. A crash loses at most the newest additions, which are then made again.
"""

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lodger_daemon.clock import WallTime

FORM: Final = 1
"""Counted up when what is indexed changes: the file is then made anew."""
PAGE_CACHE_KIB: Final = 1024
BUSY_TIMEOUT_MS: Final = 5000
SNIPPET_WORDS: Final = 24

_STATEMENTS: Final = (
    "CREATE TABLE documents (number INTEGER PRIMARY KEY, message_id TEXT NOT NULL, agent_id TEXT NOT NULL, "
    "conversation_id TEXT NOT NULL, kind TEXT NOT NULL, created_at REAL NOT NULL) STRICT",
    "CREATE VIRTUAL TABLE texts USING fts5 (text, tokenize = 'unicode61 remove_diacritics 2')",
    f"PRAGMA user_version = {FORM}",
)


@dataclass(frozen=True, slots=True)
class Document:
    """One message to be found."""

    number: int
    """Its row's in the database: messages are only ever added, so it grows with time."""
    message_id: str
    agent_id: str
    conversation_id: str
    kind: str
    created_at: WallTime
    text: str


@dataclass(frozen=True, slots=True)
class Filters:
    """None = all."""

    agent_ids: tuple[str, ...] | None = None
    conversation_id: str | None = None
    kinds: tuple[str, ...] | None = None
    since: WallTime | None = None
    until: WallTime | None = None


@dataclass(frozen=True, slots=True)
class Found:
    number: int
    message_id: str
    agent_id: str
    conversation_id: str
    kind: str
    created_at: WallTime
    snippet: str
    """The words around the first ones that were looked for."""


class SearchIndex:
    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection

    @classmethod
    def open(cls, path: Path) -> "SearchIndex":
        """Raises: sqlite3.Error, OSError when there is no place for one."""
        try:
            return cls(path, _open(path))
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise
        remove(path)
        return cls(path, _open(path))

    def close(self) -> None:
        self._connection.close()

    def last(self) -> tuple[int, str]:
        row = self._connection.execute(
            "SELECT number, message_id FROM documents ORDER BY number DESC LIMIT 1"
        ).fetchone()
        return (int(row[0]), str(row[1])) if row else (0, "")

    def add(self, documents: Sequence[Document]) -> None:
        connection = self._connection
        with _transaction(connection):
            for document in documents:
                cursor = connection.execute(
                    "INSERT OR IGNORE INTO documents (number, message_id, agent_id, conversation_id, kind, created_at) "
                    "VALUES (?, ?, ?, ?, ?, ?)",
                    (
                        document.number,
                        document.message_id,
                        document.agent_id,
                        document.conversation_id,
                        document.kind,
                        document.created_at,
                    ),
                )
                if cursor.rowcount:
                    connection.execute(
                        "INSERT INTO texts (rowid, text) VALUES (?, ?)", (document.number, document.text)
                    )

    def clear(self) -> None:
        with _transaction(self._connection):
            self._connection.execute("DELETE FROM texts")
            self._connection.execute("DELETE FROM documents")

    def find(self, match: str, filters: Filters, before: int | None, limit: int) -> tuple[Found, ...]:
        """Args:
        match: in FTS5's own language, well formed.
        before: only messages with a smaller number.
        """
        conditions: list[str] = ["texts MATCH ?"]
        values: list[str | float] = [match]
        for condition, value in (
            ("texts.rowid < ?", before),
            ("d.agent_id IN (SELECT value FROM json_each(?))", _json(filters.agent_ids)),
            ("d.conversation_id = ?", filters.conversation_id),
            ("d.kind IN (SELECT value FROM json_each(?))", _json(filters.kinds)),
            ("d.created_at >= ?", filters.since),
            ("d.created_at < ?", filters.until),
        ):
            if value is not None:
                conditions.append(condition)
                values.append(value)
        rows = self._connection.execute(
            "SELECT d.number, d.message_id, d.agent_id, d.conversation_id, d.kind, d.created_at, "
            f"snippet(texts, 0, '', '', '…', {SNIPPET_WORDS}) FROM texts JOIN documents d ON d.number = texts.rowid "
            f"WHERE {' AND '.join(conditions)} ORDER BY texts.rowid DESC LIMIT ?",
            (*values, limit),
        )
        return tuple(Found(*row) for row in rows)


def remove(path: Path) -> None:
    """The file and what SQLite keeps beside it."""
    for ending in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + ending).unlink(missing_ok=True)


def _open(path: Path) -> sqlite3.Connection:
    path.touch(mode=0o600)
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        connection.execute(f"PRAGMA cache_size = -{PAGE_CACHE_KIB}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        form = connection.execute("PRAGMA user_version").fetchone()[0]
        if form not in (0, FORM):
            raise sqlite3.DatabaseError(f"{path} has form {form}, not {FORM}")
        if form == 0:
            with _transaction(connection):
                for statement in _STATEMENTS:
                    connection.execute(statement)
        connection.execute("SELECT number FROM documents LIMIT 1").fetchone()
        connection.execute("SELECT rowid FROM texts LIMIT 1").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _json(values: tuple[str, ...] | None) -> str | None:
    return None if values is None else json.dumps(values)
