"""Keeping the hub's repositories small and whole. Blocking: call on a thread.

One upkeep at a time for each repository, held by a lock that other processes see too; pushes go on meanwhile. After a
crash the repository is as whole as before: git puts new packs in place before it removes what they replace.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lodger_hub.git_host.backend import MEMORY_LIMIT_BYTES
from lodger_hub.git_host.repositories import find_git, git_environment
from lodger_hub.git_host.seams import Seam, no_seam

LOOSE_OBJECTS: Final = 2000
"""Some 500 pushes of one small file. More cost a file each on disk, and time at each clone."""
PACKS: Final = 20
"""A fetch looks into every pack; fewer than git's own 50, because here each holds a push of over 100 objects."""
_KEEP_UNREACHABLE: Final = "2.days.ago"
"""What a push has brought and not yet named is minutes old at most."""
_LEFT_OVER_S: Final = 24 * 3600.0
"""A killed push leaves its quarantine folder; no push lives that long."""
DEAD_LOCK_S: Final = 60.0
"""A git that lives holds one for some milliseconds, on a slow disk for some seconds."""
_LOCKS: Final = ("refs/heads/main.lock", "packed-refs.lock", "packed-refs.new", "HEAD.lock", "config.lock")
"""`packed-refs.new` too: git makes it anew and refuses where one stands."""
_REPACK_LIMIT_S: Final = 600.0
_CHECK_LIMIT_S: Final = 1800.0
_TEXT_BYTES: Final = 8192
_LEAN: Final = ("-c", "pack.threads=1", "-c", "pack.windowMemory=64m", "-c", "core.packedGitLimit=256m")
"""So that the limit on memory is met by a bomb only."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What `git fsck` found."""

    whole: bool
    text: str
    """Its words, when something is wrong."""


def needs_tidying(repository: Path, loose_objects: int = LOOSE_OBJECTS, max_packs: int = PACKS) -> bool:
    """Judged by one of git's 256 folders of loose objects, and by the number of packs: a millisecond."""
    objects = repository / "objects"
    loose = sum(1 for _ in _inside(objects / "17"))
    packs = sum(1 for path in _inside(objects / "pack") if path.suffix == ".pack")
    return loose * 256 > loose_objects or packs > max_packs


class Upkeep:
    """Runs git on repositories; `stop`, from any thread, ends what runs and keeps new ones from starting."""

    def __init__(self, seam: Seam = no_seam) -> None:
        self._seam = seam
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def tidy(self, repository: Path) -> bool:
        """Make one pack and drop what nothing needs. False when another upkeep runs there, or git failed."""
        with _sole(repository) as ours:
            if not ours:
                return False
            _drop_left_over(repository / "objects", time.time())
            # -A, not -a: what a push has brought and not named yet must stay.
            repack = ("repack", "-A", "-d", "-q", f"--unpack-unreachable={_KEEP_UNREACHABLE}")
            for argv in (repack, ("prune", f"--expire={_KEEP_UNREACHABLE}"), ("pack-refs", "--all")):
                self._seam(f"before {argv[0]}")
                if self._git(repository, _REPACK_LIMIT_S, *argv)[0] != 0:
                    return False
                self._seam(f"after {argv[0]}")
            return True

    def check(self, repository: Path) -> Checked:
        """Look at every object and link. Changes nothing, and may run while others push."""
        argv = ("fsck", "--full", "--strict", "--no-dangling", "--no-progress")
        exit_code, text = self._git(repository, _CHECK_LIMIT_S, *argv)
        return Checked(exit_code == 0, "" if exit_code == 0 else text or "git fsck took too long")

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            for process in self._running:
                _kill(process)

    def _git(self, repository: Path, limit_s: float, *argv: str) -> tuple[int | None, str]:
        """Exit code (None for a time-out) and the end of what it said."""
        limit = f'ulimit -v {MEMORY_LIMIT_BYTES // 1024} 2>/dev/null; exec "$@"'
        process = subprocess.Popen(
            ["/bin/sh", "-c", limit, "sh", find_git(), f"--git-dir={repository}", *_LEAN, *argv],
            env=git_environment(),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        with self._lock:
            self._running.add(process)
            if self._stopped:
                _kill(process)
        try:
            said, _ = process.communicate(timeout=limit_s)
            return process.returncode, said[-_TEXT_BYTES:].decode("utf-8", "replace").strip()
        except subprocess.TimeoutExpired:
            _kill(process)
            process.communicate()
            return None, ""
        finally:
            with self._lock:
                self._running.discard(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def size_bytes(repository: Path) -> int:
    """What the objects take on disk."""
    total = 0
    for folder, _, names in os.walk(repository / "objects"):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(Path(folder, name)).st_size
    return total


@contextlib.contextmanager
def _sole(repository: Path) -> Iterator[bool]:
    """Whether nobody else keeps this repository now. The lock goes with the process."""
    descriptor = os.open(repository / "upkeep.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
    finally:
        os.close(descriptor)


def drop_dead_locks(repository: Path, now: float, dead_lock_s: float = DEAD_LOCK_S) -> None:
    """A git that was killed amid moving `main`, or a machine that lost its power then, leaves a lock: git would refuse
    every later push. `now` is wall time."""
    for name in _LOCKS:
        with contextlib.suppress(OSError):
            lock = repository / name
            if now - lock.lstat().st_mtime > dead_lock_s:
                lock.unlink()


def _drop_left_over(objects: Path, now: float) -> None:
    for path in [*_inside(objects), *_inside(objects / "pack")]:
        if path.name.startswith(("tmp_", "incoming-")):
            with contextlib.suppress(OSError):
                if now - path.lstat().st_mtime > _LEFT_OVER_S:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()


def _inside(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []
