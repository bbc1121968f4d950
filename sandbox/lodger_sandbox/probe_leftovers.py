"""What a probe leaves when its daemon was killed in the middle of it, cleared away by a later one.

bwrap's inner process waits for its outer one before it ties its life to it: killed in that moment, it waits for ever.
"""

import contextlib
import os
import shutil
import signal
import stat
import time
from pathlib import Path
from typing import Final

PREFIX: Final = "lodger-probe-"
FOLDERS: Final = Path("/var/tmp")  # noqa: S108 - where probes make theirs; only folders of our own are touched
OLD_AFTER_S: Final = 600.0
"""Far longer than any probe may take, so that none that runs is touched."""


def clear_leftovers(uids: frozenset[int], folders: Path = FOLDERS, old_after_s: float = OLD_AFTER_S) -> None:
    """Remove old probe folders of this user and end old probe processes of these users. Blocking; never raises."""
    now = time.time()
    with contextlib.suppress(OSError):
        for folder in folders.glob(f"{PREFIX}*"):
            with contextlib.suppress(OSError):
                found = folder.lstat()
                ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
                if ours and now - found.st_mtime > old_after_s:
                    shutil.rmtree(folder, ignore_errors=True)
    for entry in Path("/proc").glob("[0-9]*"):
        _end_if_left_over(entry, uids, now, old_after_s)


def _end_if_left_over(entry: Path, uids: frozenset[int], now: float, old_after_s: float) -> None:
    try:
        # The descriptor first: what is read next is of the process that it names, or it has ended.
        descriptor = os.pidfd_open(int(entry.name))
    except (OSError, AttributeError):
        return
    try:
        found = entry.stat()
        words = (entry / "cmdline").read_bytes().split(b"\0")
        orphan = b"\nPPid:\t1\n" in (entry / "status").read_bytes()
        is_probe = words[0].endswith(b"bwrap") and any(word.startswith(PREFIX.encode()) for word in words)
        if is_probe and orphan and found.st_uid in uids and now - found.st_mtime > old_after_s:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except OSError:
        pass
    finally:
        os.close(descriptor)
