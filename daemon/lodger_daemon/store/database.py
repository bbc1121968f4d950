"""The daemon's one database: durable writes, reads beside them, and typed refusals.

    db = Database.open(paths.database, lock=paths.daemon_lock, clock=clock)  # blocks for some milliseconds
    stored = await db.write(lambda c: message_rows.append(c, key, message))  # returns after COMMIT and its fsync
    db.write_soon(lambda c: event_rows.insert(c, key, rows))                 # nobody waits; committed within 20 ms
    rows = await db.read(lambda c: message_rows.page(c, key, 50))            # a thread and a connection of its own
    waiting = db.read_now(lambda c: inbox_rows.waiting(c, key))              # at once, on the loop; tiny reads only
    await db.aclose()                                                        # writes what waits, lets go of the lock

All functions of the `*_rows` modules take a `sqlite3.Connection` first and may be combined freely inside one `write`:
that is one atomic change. A function given to `write` may run more than once (when a neighbour in its group met a full
disk), so it has no effect but on the connection. It raises to undo itself; the exception reaches the caller.

Crash guarantee: what `write` returned is on disk. Cancelling the waiter does not undo the write. Rows given to
`write_soon` may be lost in a crash, never in a different order than given.
"""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar, cast

from lodger_daemon.clock import Clock
from lodger_daemon.store.errors import StoreClosed
from lodger_daemon.store.faults import translated
from lodger_daemon.store.ownership import OwnershipLock, take_epoch
from lodger_daemon.store.schema import STEPS, Step, bring_up_to_date
from lodger_daemon.store.writer import Writer, WriterCounts, in_a_thread

T = TypeVar("T")

BUSY_TIMEOUT_MS: Final = 5000
"""How long a write waits for another process (an inspection tool, a backup); SQLite's usual figure."""

PAGE_CACHE_KIB: Final = 512
"""Of each connection: a quarter of SQLite's own figure. The system's file cache is behind it, and memory counts."""

READER_THREADS: Final = 2
"""Long reads overlap at most with one another; the machine may be small."""


class Database:
    """Open for as long as the daemon runs. `write`, `read` and `read_now` belong to the event loop."""

    def __init__(self, path: Path, lock: OwnershipLock | None, writer: Writer, epoch: int) -> None:
        self.path = path
        self.epoch = epoch
        self._lock = lock
        self._writer = writer
        self._readers: ThreadPoolExecutor | None = None
        self._reader_local = threading.local()
        self._reader_connections: list[sqlite3.Connection] = []
        self._now_connection: sqlite3.Connection | None = None
        self._closed = False

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        lock: Path | None = None,
        clock: Clock,
        steps: Sequence[Step] = STEPS,
        make_writer: Callable[[sqlite3.Connection, Path, int], Writer] = in_a_thread,
    ) -> "Database":
        """Open or create the file, become its owner, bring its schema up to date. Blocks.

        Args:
            lock: held while open. None in tests and tools that own the whole folder anyway.
            make_writer: decides where the writer works; given its connection, the file and the epoch.

        Raises: StoreOwned, StoreTooNew, StoreDamaged, StoreFull, StoreBusy, StoreFailed.
        """
        held = OwnershipLock(lock) if lock is not None else None
        connection: sqlite3.Connection | None = None
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(mode=0o600)
            connection = _connect(path)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            bring_up_to_date(connection, path, steps)
            epoch = take_epoch(connection, clock.wall())
        except BaseException as error:
            if connection is not None:
                connection.close()
            if held is not None:
                held.release()
            if isinstance(error, sqlite3.Error | OSError):
                raise translated(error, path) from error
            raise
        return cls(path, held, make_writer(connection, path, epoch), epoch)

    async def write(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """Run `fn` in the writer's thread inside a transaction and return its result once that is committed.

        Raises: StoreFull, StoreBusy, StoreFailed, OwnershipLost, ConstraintViolated, StoreClosed; whatever `fn` raises.
        """
        return cast("T", await self._writer.submit(fn, asyncio.get_running_loop()))

    def write_soon(self, fn: Callable[[sqlite3.Connection], object]) -> bool:
        """Have `fn` written with the next group, at the latest in 20 ms; from any thread, never blocks, never raises.

        It waits for space when the disk is full. False when it was dropped because too much waits (see `counts`).
        """
        return self._writer.submit_soon(fn)

    async def read(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """Run `fn` on a read-only connection in a thread. It sees every write that has returned."""
        if self._closed:
            raise StoreClosed()
        if self._readers is None:
            self._readers = ThreadPoolExecutor(READER_THREADS, thread_name_prefix="lodger-reader")
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read_in_thread, fn)

    def read_now(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """Run `fn` at once in the calling thread, which must be the same each time: the event loop's.

        For reads of a few indexed rows (10 to 50 µs). A reader of a WAL database never waits for the writer, and this
        connection waits for nobody: it raises StoreBusy instead.
        """
        if self._closed:
            raise StoreClosed()
        if self._now_connection is None:
            self._now_connection = _connect_reader(self.path, busy_timeout_ms=0)
        try:
            return fn(self._now_connection)
        except sqlite3.Error as error:
            raise translated(error, self.path) from error

    @property
    def counts(self) -> WriterCounts:
        """For status: whether the disk is full, and what became of writes that nobody waited for."""
        return self._writer.counts

    async def aclose(self) -> None:
        """Write what waits, close every connection, let go of the lock. May be called twice."""
        if self._closed:
            return
        self._closed = True
        await asyncio.to_thread(self._close_threads)
        if self._now_connection is not None:
            self._now_connection.close()
        if self._lock is not None:
            self._lock.release()

    def _close_threads(self) -> None:
        self._writer.close()
        if self._readers is not None:
            self._readers.shutdown(wait=True)
        for connection in self._reader_connections:
            connection.close()

    def _read_in_thread(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        connection = cast("sqlite3.Connection | None", getattr(self._reader_local, "connection", None))
        if connection is None:
            connection = _connect_reader(self.path, BUSY_TIMEOUT_MS)
            self._reader_local.connection = connection
            self._reader_connections.append(connection)
        try:
            return fn(connection)
        except sqlite3.Error as error:
            raise translated(error, self.path) from error


def _connect(path: Path) -> sqlite3.Connection:
    # Transactions are ours to begin; a connection is handed to the one thread that uses it from then on.
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=512)
    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute(f"PRAGMA cache_size = -{PAGE_CACHE_KIB}")
    return connection


def _connect_reader(path: Path, busy_timeout_ms: int) -> sqlite3.Connection:
    connection = _connect(path)
    connection.execute("PRAGMA query_only = ON")
    connection.execute(f"PRAGMA busy_timeout = {busy_timeout_ms}")
    return connection
