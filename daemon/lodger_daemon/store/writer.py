"""The one thread that writes, with group commit.

Whatever waits when the thread is free becomes one transaction with one sync of the disk. Each piece of work has a
savepoint of its own, so one that fails undoes itself only. A result is delivered after COMMIT and not before.
"""

import asyncio
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from lodger_daemon.store.errors import OwnershipLost, StoreClosed, StoreError, StoreFull
from lodger_daemon.store.faults import translated
from lodger_daemon.store.ownership import check_epoch

Work = Callable[[sqlite3.Connection], Any]

GROUP_LIMIT: Final = 256
"""Pieces of work in one transaction: keeps a transaction, and with it the wait of the first in it, short."""

SOON_DELAY_S: Final = 0.02
"""How long rows that nobody waits for may gather before they are committed."""

SOON_LIMIT: Final = 4096
"""Pieces of such work that may wait, also while the disk is full; about 10 s of a fast stream."""

REPEAT_DELAY_S: Final = 1.0
"""How often rows that could not be written are tried again without other work."""

FULL_RETRY_S: Final = 1.0
"""How often a full disk is looked at again while nothing is to be written, so that status tells the truth."""


@dataclass(slots=True)
class Job:
    """One piece of work. `future` is None for work that nobody waits for."""

    work: Work
    loop: asyncio.AbstractEventLoop | None
    future: "asyncio.Future[Any] | None"
    result: Any = None
    error: BaseException | None = None


@dataclass(slots=True)
class WriterCounts:
    """What happened where nobody waited for an answer."""

    commits: int = 0
    soon_dropped: int = 0
    """Refused because too many waited."""
    soon_failed: int = 0
    last_soon_error: str = ""
    full: bool = False
    """Whether the latest transaction found no space."""


@dataclass(slots=True)
class _Inbound:
    """Guarded by the condition."""

    jobs: "deque[Job]" = field(default_factory=deque)
    awaited: int = 0
    soon: int = 0
    closing: bool = False


class Writer:
    """Owns the writing connection from its start to `close`."""

    def __init__(self, connection: sqlite3.Connection, path: Path, epoch: int) -> None:
        self._connection = connection
        self._path = path
        self._epoch = epoch
        self._condition = threading.Condition()
        self._inbound = _Inbound()
        self.counts = WriterCounts()
        self._repeating = False
        """Whether the jobs at the head have failed before; then they are not tried again at once."""
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Write in a thread from now on. Without it the owner calls `write_waiting` when it likes."""
        self._thread = threading.Thread(target=self._run, name="lodger-writer", daemon=True)
        self._thread.start()

    # From any thread.

    def submit(self, work: Work, loop: asyncio.AbstractEventLoop) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = loop.create_future()
        with self._condition:
            if self._inbound.closing:
                raise StoreClosed()
            self._inbound.jobs.append(Job(work, loop, future))
            self._inbound.awaited += 1
            self._condition.notify()
        return future

    def submit_soon(self, work: Work) -> bool:
        """False when too many wait already or the store is closed: then the work is dropped and counted."""
        with self._condition:
            if self._inbound.closing or self._inbound.soon >= SOON_LIMIT:
                self.counts.soon_dropped += 1
                return False
            self._inbound.jobs.append(Job(work, None, None))
            self._inbound.soon += 1
            if self._inbound.soon == 1 or self._inbound.soon >= GROUP_LIMIT:
                self._condition.notify()
            return True

    def close(self) -> None:
        """Write what waits, then end the thread. Blocks."""
        with self._condition:
            self._inbound.closing = True
            self._condition.notify()
        if self._thread is not None:
            self._thread.join()
            return
        while self.write_waiting():
            pass
        self._connection.close()

    # In the writer's thread, or whose ever work it is where there is none.

    def write_waiting(self) -> bool:
        """Write one group of what waits and deliver its results; False when nothing waits."""
        with self._condition:
            group = self._take()
        if group:
            self._write(group)
            self._deliver(group)
        return bool(group)

    def _run(self) -> None:
        while True:
            group = self._next_group()
            if not group:
                break
            self._write(group)
            self._deliver(group)
        self._connection.close()

    def _next_group(self) -> list[Job]:
        with self._condition:
            while not self._inbound.jobs and not self._inbound.closing:
                if not self._condition.wait(FULL_RETRY_S if self.counts.full else None):
                    return [Job(_look_for_space, None, None)]
            deadline = time.monotonic() + (REPEAT_DELAY_S if self._repeating else SOON_DELAY_S)
            while not self._is_due():
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    break
                self._condition.wait(left_s)
            return self._take()

    def _is_due(self) -> bool:
        inbound = self._inbound
        return inbound.awaited > 0 or inbound.closing or (inbound.soon >= GROUP_LIMIT and not self._repeating)

    def _take(self) -> list[Job]:
        inbound = self._inbound
        count = min(len(inbound.jobs), GROUP_LIMIT)
        group = [inbound.jobs.popleft() for _ in range(count)]
        awaited = sum(job.future is not None for job in group)
        inbound.awaited -= awaited
        inbound.soon -= count - awaited
        return group

    def _write(self, group: list[Job]) -> None:
        fault = self._attempt(group)
        if fault is not None and len(group) > 1 and not isinstance(fault, OwnershipLost):
            self._write_one_by_one(group)
        elif fault is not None:
            for job in group:
                job.error = fault
        self.counts.full = any(isinstance(job.error, StoreFull) for job in group)

    def _write_one_by_one(self, group: list[Job]) -> None:
        """One piece of work that does not fit must not take the others along."""
        full: StoreError | None = None
        for job in group:
            if job.future is None and full is not None:
                # Rows that nobody waits for keep their order and cost no further attempt.
                job.error = full
                continue
            job.error = self._attempt([job]) or job.error
            if isinstance(job.error, StoreFull):
                full = job.error

    def _attempt(self, group: list[Job]) -> StoreError | None:
        """One transaction; what it returns undid all of it."""
        try:
            self._transaction(group)
        except sqlite3.Error as error:
            return translated(error, self._path)
        except StoreError as error:
            return error
        return None

    def _transaction(self, group: list[Job]) -> None:
        connection = self._connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            check_epoch(connection, self._epoch)
            for job in group:
                self._run_job(job)
            connection.execute("COMMIT")
            self.counts.commits += 1
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _run_job(self, job: Job) -> None:
        connection = self._connection
        job.result = job.error = None
        connection.execute("SAVEPOINT job")
        try:
            job.result = job.work(connection)
        except Exception as error:  # whatever a piece of work raises belongs to whoever gave it
            if not connection.in_transaction:
                # SQLite gave up the whole transaction (no space, for instance): the group has to be written anew.
                raise
            connection.execute("ROLLBACK TO job")
            job.error = translated(error, self._path) if isinstance(error, sqlite3.Error) else error
        connection.execute("RELEASE job")

    def _deliver(self, group: list[Job]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[Job]] = {}
        to_repeat: list[Job] = []
        for job in group:
            if job.loop is not None:
                by_loop.setdefault(job.loop, []).append(job)
            elif isinstance(job.error, StoreError) and job.error.retryable:
                if job.work is not _look_for_space:
                    to_repeat.append(job)
            elif job.error is not None:
                self.counts.soon_failed += 1
                self.counts.last_soon_error = str(job.error)
        self._put_back(to_repeat)
        for loop, jobs in by_loop.items():
            try:
                loop.call_soon_threadsafe(_settle, jobs)
            except RuntimeError:  # the loop is closed: nobody waits any more
                continue

    def _put_back(self, jobs: list[Job]) -> None:
        """Rows that nobody waits for stay until they can be written, within the limit, in their order."""
        self._repeating = bool(jobs)
        with self._condition:
            room = 0 if self._inbound.closing else max(0, SOON_LIMIT - self._inbound.soon)
            kept = jobs[-room:] if room else []
            self.counts.soon_dropped += len(jobs) - len(kept)
            self._inbound.jobs.extendleft(reversed(kept))
            self._inbound.soon += len(kept)


def in_a_thread(connection: sqlite3.Connection, path: Path, epoch: int) -> Writer:
    """The writer of a running daemon."""
    writer = Writer(connection, path, epoch)
    writer.start()
    return writer


def _look_for_space(connection: sqlite3.Connection) -> None:
    connection.execute(
        "INSERT INTO settings (key, value, updated_at) VALUES ('store.space', 'true', 0) "
        "ON CONFLICT (key) DO UPDATE SET value = excluded.value"
    )


def _settle(jobs: list[Job]) -> None:
    for job in jobs:
        future = job.future
        if future is None or future.done():
            continue
        if job.error is not None:
            future.set_exception(job.error)
        else:
            future.set_result(job.result)
