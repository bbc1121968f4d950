"""The embedded engine of `HubStore`: one SQLite file, used by one thread of its own."""

import asyncio
import json
import sqlite3
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Self, TypeVar

from lodger_hub.errors import StoreFailed
from lodger_hub.store.contract import AuditEntry, Environment, Registration, StoredToken, TokenRole

T = TypeVar("T")

AUDIT_ROWS_KEPT: Final = 10_000

SCHEMA_VERSION: Final = 1
SCHEMA: Final = """
CREATE TABLE environments (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    connection_id TEXT NOT NULL UNIQUE,
    device_id TEXT NOT NULL UNIQUE,
    connection_name TEXT NOT NULL,
    listener_instance_id TEXT,
    metadata TEXT NOT NULL,
    first_seen_at_ms INTEGER NOT NULL,
    last_seen_at_ms INTEGER NOT NULL,
    connected_at_ms INTEGER,
    last_heartbeat_at_ms INTEGER
) STRICT;
CREATE TABLE tokens (
    id TEXT PRIMARY KEY,
    role TEXT NOT NULL CHECK (role IN ('machine', 'client')),
    digest BLOB NOT NULL UNIQUE CHECK (length(digest) = 32),
    created_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE audit (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    at_ms INTEGER NOT NULL,
    event TEXT NOT NULL,
    source TEXT NOT NULL
) STRICT;
"""

ENVIRONMENT_COLUMNS: Final = (
    "id, connection_id, device_id, connection_name, listener_instance_id, metadata, "
    "first_seen_at_ms, last_seen_at_ms, connected_at_ms, last_heartbeat_at_ms"
)


class SqliteHubStore:
    """Implements `HubStore`. Open it with `open`; nothing else may write the file meanwhile."""

    def __init__(self, database: sqlite3.Connection, thread: ThreadPoolExecutor, file: Path) -> None:
        self._database = database
        self._thread = thread
        self._file = file
        self._closed = False

    @classmethod
    async def open(cls, file: Path) -> Self:
        """Raises: StoreFailed."""
        thread = ThreadPoolExecutor(1, thread_name_prefix="hub-store")
        try:
            database = await asyncio.get_running_loop().run_in_executor(thread, _connect, file)
        except (sqlite3.Error, OSError) as error:
            thread.shutdown(wait=False)
            raise StoreFailed(file, str(error)) from error
        except BaseException:
            thread.shutdown(wait=False)
            raise
        return cls(database, thread, file)

    async def register(self, registration: Registration, at_ms: int) -> Environment:
        def work(database: sqlite3.Connection) -> Environment:
            database.execute(
                "INSERT INTO environments (id, connection_id, device_id, connection_name, listener_instance_id, "
                "metadata, first_seen_at_ms, last_seen_at_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
                "ON CONFLICT (device_id) DO UPDATE SET connection_id = excluded.connection_id, "
                "connection_name = excluded.connection_name, listener_instance_id = excluded.listener_instance_id, "
                "metadata = excluded.metadata, last_seen_at_ms = excluded.last_seen_at_ms",
                (
                    f"environment-{uuid.uuid4()}",
                    registration.connection_id,
                    registration.device_id,
                    registration.connection_name,
                    registration.listener_instance_id,
                    json.dumps(registration.metadata),
                    at_ms,
                    at_ms,
                ),
            )
            found = _one(database, "connection_id = ?", registration.connection_id)
            assert found is not None
            return found

        return await self._run(work)

    async def by_connection(self, connection_id: str) -> Environment | None:
        return await self._run(lambda database: _one(database, "connection_id = ?", connection_id))

    async def by_device(self, device_id: str) -> Environment | None:
        return await self._run(lambda database: _one(database, "device_id = ?", device_id))

    async def environments(self, limit: int, after: str | None) -> Sequence[Environment]:
        def work(database: sqlite3.Connection) -> list[Environment]:
            behind = "seq > (SELECT seq FROM environments WHERE id = ?)" if after is not None else "? IS NULL"
            rows = database.execute(
                f"SELECT {ENVIRONMENT_COLUMNS} FROM environments WHERE {behind} ORDER BY seq LIMIT ?",  # noqa: S608
                (after, limit),
            )
            return [_environment(row) for row in rows]

        return await self._run(work)

    async def note_contact(self, connection_id: str, at_ms: int, *, connected: bool = False) -> None:
        def work(database: sqlite3.Connection) -> None:
            database.execute(
                "UPDATE environments SET last_heartbeat_at_ms = ?, last_seen_at_ms = ?, "
                "connected_at_ms = CASE WHEN ? THEN ? ELSE connected_at_ms END WHERE connection_id = ?",
                (at_ms, at_ms, connected, at_ms, connection_id),
            )

        await self._run(work)

    async def tokens(self) -> Sequence[StoredToken]:
        def work(database: sqlite3.Connection) -> list[StoredToken]:
            rows = database.execute("SELECT id, role, digest, created_at_ms FROM tokens ORDER BY created_at_ms, id")
            return [StoredToken(row[0], TokenRole(row[1]), row[2], row[3]) for row in rows]

        return await self._run(work)

    async def add_token(self, token: StoredToken) -> None:
        def work(database: sqlite3.Connection) -> None:
            database.execute(
                "INSERT INTO tokens (id, role, digest, created_at_ms) VALUES (?, ?, ?, ?)",
                (token.id, token.role.value, token.digest, token.created_at_ms),
            )

        await self._run(work)

    async def revoke_tokens(self, ids: Sequence[str]) -> None:
        def work(database: sqlite3.Connection) -> None:
            database.executemany("DELETE FROM tokens WHERE id = ?", [(token_id,) for token_id in ids])

        await self._run(work)

    async def record(self, entry: AuditEntry) -> None:
        def work(database: sqlite3.Connection) -> None:
            cursor = database.execute(
                "INSERT INTO audit (at_ms, event, source) VALUES (?, ?, ?)", (entry.at_ms, entry.event, entry.source)
            )
            database.execute("DELETE FROM audit WHERE seq <= ?", ((cursor.lastrowid or 0) - AUDIT_ROWS_KEPT,))

        await self._run(work)

    async def audit(self, limit: int) -> Sequence[AuditEntry]:
        def work(database: sqlite3.Connection) -> list[AuditEntry]:
            rows = database.execute("SELECT at_ms, event, source FROM audit ORDER BY seq DESC LIMIT ?", (limit,))
            return [AuditEntry(*row) for row in rows]

        return await self._run(work)

    async def aclose(self) -> None:
        self._closed = True
        await asyncio.get_running_loop().run_in_executor(self._thread, self._database.close)
        self._thread.shutdown(wait=False)

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do `work` in one transaction on the store's thread."""

        def transaction() -> T:
            with self._database:
                return work(self._database)

        if self._closed:
            raise StoreFailed(self._file, "it is closed")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, transaction)
        except sqlite3.Error as error:
            raise StoreFailed(self._file, str(error)) from error


def _connect(file: Path) -> sqlite3.Connection:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.touch(mode=0o600)
    database = sqlite3.connect(file, check_same_thread=False, timeout=5.0)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version == 0:
        database.executescript(f"BEGIN; {SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;")
    elif version > SCHEMA_VERSION:
        database.close()
        raise OSError(f"it was written by a newer hub (schema {version}, this one knows {SCHEMA_VERSION})")
    return database


def _one(database: sqlite3.Connection, condition: str, value: str) -> Environment | None:
    row = database.execute(
        f"SELECT {ENVIRONMENT_COLUMNS} FROM environments WHERE {condition}",  # noqa: S608 - the condition is ours
        (value,),
    ).fetchone()
    return None if row is None else _environment(row)


def _environment(row: tuple[str, str, str, str, str | None, str, int, int, int | None, int | None]) -> Environment:
    return Environment(
        id=row[0],
        connection_id=row[1],
        device_id=row[2],
        connection_name=row[3],
        listener_instance_id=row[4],
        metadata=json.loads(row[5]),
        first_seen_at_ms=row[6],
        last_seen_at_ms=row[7],
        connected_at_ms=row[8],
        last_heartbeat_at_ms=row[9],
    )
