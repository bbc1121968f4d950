"""Who may write: one daemon per state folder, by a lock while it lives and by an epoch for whoever wakes up late.

The lock keeps a second daemon from starting. It can be lost without the owner noticing (the file was deleted, the file
system forgot it), so every write transaction also checks the epoch that the owner took when it opened the database.
"""

import fcntl
import os
import sqlite3
from pathlib import Path

from lodger_daemon.clock import WallTime
from lodger_daemon.store.errors import OwnershipLost, StoreOwned


class OwnershipLock:
    """Holds an exclusive `flock` until `release`; the kernel lets go of it when the process dies."""

    def __init__(self, path: Path) -> None:
        """Raises: StoreOwned."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = _read_pid(self._fd)
            os.close(self._fd)
            raise StoreOwned(path, owner) from None
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _read_pid(fd: int) -> int | None:
    text = os.pread(fd, 32, 0).strip()
    return int(text) if text.isdigit() else None


def take_epoch(connection: sqlite3.Connection, now: WallTime) -> int:
    """Become the owner: whoever held an earlier epoch can no longer write."""
    row = connection.execute(
        "UPDATE ownership SET epoch = epoch + 1, pid = ?, since = ? WHERE id = 1 RETURNING epoch", (os.getpid(), now)
    ).fetchone()
    return int(row[0])


def check_epoch(connection: sqlite3.Connection, held: int) -> None:
    """Called first in every write transaction. Raises: OwnershipLost."""
    current = int(connection.execute("SELECT epoch FROM ownership WHERE id = 1").fetchone()[0])
    if current != held:
        raise OwnershipLost(held, current)
