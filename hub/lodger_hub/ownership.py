"""One hub per state folder."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from lodger_hub.errors import StateInUse

LOCK_FILE: Final = "hub.lock"


def take_state(folder: Path) -> Callable[[], None]:
    """Take the folder for this process; returns what gives it back. Blocking. A process that dies gives it back too,
    and programs it has started do not keep it. Raises: StateInUse, OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = os.read(descriptor, 32).decode("ascii", "replace").strip()
        os.close(descriptor)
        raise StateInUse(folder, owner) from error
    except BaseException:
        os.close(descriptor)
        raise
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())
    return lambda: os.close(descriptor)
