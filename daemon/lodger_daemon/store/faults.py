"""From SQLite's errors to the store's own."""

import errno
import shutil
import sqlite3
from pathlib import Path
from typing import Final

from lodger_daemon.store.errors import (
    ConstraintViolated,
    StoreBusy,
    StoreDamaged,
    StoreError,
    StoreFailed,
    StoreFull,
)

_NO_SPACE_BYTES: Final = 1024 * 1024
"""Below this an input/output error means a full disk: SQLite reports a failed growth of its shared memory as one."""


def translated(error: sqlite3.Error | OSError, path: Path) -> StoreError:
    """The store's error for one of SQLite's or the system's."""
    if isinstance(error, OSError):
        return StoreFull(path) if error.errno in (errno.ENOSPC, errno.EDQUOT) else StoreFailed(path, str(error))
    name = getattr(error, "sqlite_errorname", "") or ""
    if name.startswith("SQLITE_CONSTRAINT"):
        return ConstraintViolated(str(error))
    if name == "SQLITE_FULL":
        return StoreFull(path)
    if name.startswith(("SQLITE_IOERR", "SQLITE_CANTOPEN")):
        return StoreFull(path) if _disk_is_full(path) else StoreFailed(path, str(error))
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StoreBusy(path)
    if name.startswith("SQLITE_CORRUPT") or name == "SQLITE_NOTADB":
        return StoreDamaged(path, str(error))
    return StoreFailed(path, str(error))


def _disk_is_full(path: Path) -> bool:
    try:
        return shutil.disk_usage(path.parent).free < _NO_SPACE_BYTES
    except OSError:
        return False
