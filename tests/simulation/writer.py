"""The store's real writer, its groups written at moments of virtual time instead of in a thread."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

from lodger_daemon.store.writer import REPEAT_DELAY_S, SOON_DELAY_S, Writer
from simulation.loop import LIFE
from simulation.world import World


class SteppedWriter(Writer):
    """A commit takes a while, and so does the word that it was done: a crash may fall between any two of these."""

    def __init__(self, connection: sqlite3.Connection, path: Path, epoch: int, world: World) -> None:
        super().__init__(connection, path, epoch)
        self.connection = connection
        self._world = world
        self._timer: asyncio.TimerHandle | None = None

    def submit(self, work: Any, loop: asyncio.AbstractEventLoop) -> "asyncio.Future[Any]":
        future = super().submit(work, loop)
        self._arm(self._world.commit_delay_s())
        return future

    def submit_soon(self, work: Any) -> bool:
        taken = super().submit_soon(work)
        if taken:
            self._arm(REPEAT_DELAY_S if self._repeating else SOON_DELAY_S)
        return taken

    def set_full(self, full: bool) -> None:
        """The disk has no page more, or has again."""
        pages = int(self.connection.execute("PRAGMA page_count").fetchone()[0])
        self.connection.execute(f"PRAGMA max_page_count = {pages if full else 1_000_000}")

    def _arm(self, delay_s: float) -> None:
        due_s = self._world.loop.time() + delay_s
        if self._timer is not None:
            if self._timer.when() <= due_s:
                return
            self._timer.cancel()
        self._timer = self._world.loop.call_at(due_s, self._step)

    def _step(self) -> None:
        self._timer = None
        before = self.counts.commits
        self.write_waiting()
        if self.counts.commits > before and LIFE.get() is not self._world.owner:
            self._world.fail("R9 one owner", f"a daemon of epoch {self._epoch} wrote after it had been replaced")
        if self._inbound.jobs:
            waits = self._inbound.awaited > 0 or not self._repeating
            self._arm(self._world.commit_delay_s() if waits else REPEAT_DELAY_S)
