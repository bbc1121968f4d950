"""The published repository of one agent: bare, in the daemon's folder, masked from every box.

All methods block; the caller runs them on a worker thread. Changes happen under `lock`, which holds against other
threads and other processes. Network commands run outside it: they only add objects and refs of their own.
"""

import fcntl
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from lodger_daemon.durable_files import sync_folder
from lodger_daemon.memory.core.commits import Identity
from lodger_daemon.memory.core.pack import make_pack, objects_in
from lodger_daemon.memory.core.remote_answers import MORE_THAN_A_FETCH
from lodger_daemon.memory.errors import GitFailed, LockBusy, MemoryUnavailable, RefMoved
from lodger_daemon.memory.git import COMMAND_LIMIT_S, Git, RunningGits
from lodger_daemon.memory.kept_gits import ObjectReader, RefChange, RefWriter, commands_for
from lodger_daemon.memory.seams import Seam
from lodger_tools.validator.objects import BadObject, Commit, parse_commit
from lodger_tools.validator.tree import TreeValidator

MAIN: Final = "refs/heads/main"
CHECKOUT: Final = "refs/lodger/checkout"
"""The commit of the checkout's main as last imported from there or brought there."""
FETCHED: Final = "refs/lodger/fetched"
REMOTE: Final = "refs/lodger/remote"
"""The remote's main as last seen, after what it holds was taken in or found to be ours."""

_LOCK_LIMIT_S: Final = 10.0
_STAYS_PACKED: Final = 100
"""As git's own limit for what it unpacks into single files."""
_STALE_LOCK_S: Final = 1.0
"""A live git holds a ref's lock for some milliseconds."""
_LOCKS_BESIDE: Final = ("HEAD.lock", "packed-refs.lock", "packed-refs.new")
"""What a git that moves a ref makes beside the ref's own: HEAD stands for main, and a ref that goes may be packed."""
_STILL_S: Final = 15.0
"""A line that has brought nothing for so long brings nothing more."""
_MAX_FETCHED_BYTES: Final = 1024**3
"""Four times the largest valid tree: a hostile remote cannot fill the disk with one pack."""
_OID: Final = re.compile(r"[0-9a-f]{40}")
_CONFIGURATION: Final = """[core]
\thooksPath = /dev/null
\tfsync = all
\tbigFileThreshold = 1m
\tlogAllRefUpdates = false
[gc]
\tauto = 0
[fetch]
\tfsckObjects = true
\tunpackLimit = 100
"""


class Published:
    """
    Args:
        shared: whether several agents share this memory.
    """

    def __init__(
        self, folder: Path, identity: Identity, running: RunningGits, seam: Seam, *, shared: bool = False
    ) -> None:
        self._shared = shared
        self.folder = folder
        self.repository = folder / "published.git"
        self.identity = identity
        self.seam = seam
        self._running = running
        self._lock = threading.Lock()
        self.git = Git(self.repository, identity, running)
        self.reader = ObjectReader(self.git)
        self._writer = RefWriter(self.git)
        self.trees = TreeValidator(self.reader.read, self.reader.size, shared=shared)
        """For trees that are published already; use under the lock."""

    def exists(self) -> bool:
        return (self.repository / "HEAD").exists()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Sole right to change this repository.

        Raises: LockBusy.
        """
        if not self._lock.acquire(timeout=_LOCK_LIMIT_S):
            raise LockBusy(f"the memory in {self.folder} is busy")
        try:
            fd = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                _flock(fd, self.folder)
                yield
            finally:
                os.close(fd)
        finally:
            self._lock.release()

    def head(self) -> str | None:
        """Published main."""
        return self.ref(MAIN)

    def main(self) -> str:
        """The same of a repository that has been founded. Raises: MemoryUnavailable when it was damaged since."""
        head = self.head()
        if head is None:
            raise MemoryUnavailable(f"the repository {self.repository} has no main; restore it")
        return head

    def ref(self, name: str) -> str | None:
        """Where a ref points, read from its file: this repository is ours, so its files can be trusted."""
        try:
            text = (self.repository / name).read_text(encoding="ascii").strip()
            return text if _OID.fullmatch(text) else None
        except (FileNotFoundError, NotADirectoryError):
            pass
        try:
            packed = (self.repository / "packed-refs").read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        return next((line[:40] for line in packed.splitlines() if line[40:] == f" {name}"), None)

    def change_refs(self, *changes: RefChange) -> None:
        """All or none. Raises: RefMoved, GitFailed."""
        wanted = [change for change in changes if change.new != change.old]
        if not wanted:
            return
        self.seam("before moving refs")
        try:
            self._writer.change(wanted)
        except RefMoved:
            if any(self.ref(change.ref) != change.old for change in wanted):
                raise
            # Nobody moved them, so a git that was killed left its lock files. We hold the lock above them.
            for name in (*(f"{change.ref}.lock" for change in wanted), *_LOCKS_BESIDE):
                _remove_stale(self.repository / name)
            self._change_and_hear_why(wanted)
        self.seam("after moving refs")

    def _change_and_hear_why(self, changes: Sequence[RefChange]) -> None:
        try:
            self._writer.change(changes)
        except RefMoved:
            if any(self.ref(change.ref) != change.old for change in changes):
                raise
            # A full disk, for example; the git that stays cannot say so.
            self.git.run("update-ref", "--stdin", "-z", stdin=commands_for(changes))

    def set_ref(self, name: str, new: str) -> None:
        self.change_refs(RefChange(name, new, self.ref(name)))

    def commit(self, oid: str) -> Commit:
        """Raises: KeyError, lodger_tools.validator.objects.BadObject."""
        kind, data = self.reader.read(oid)
        if kind != "commit":
            raise KeyError(oid)
        return parse_commit(data)

    def has(self, oid: str) -> bool:
        try:
            self.reader.size(oid)
        except KeyError:
            return False
        return True

    def has_commit(self, oid: str) -> bool:
        """As `has`, and it is a commit: a box may name whatever it likes."""
        try:
            self.commit(oid)
        except (KeyError, BadObject):
            return False
        return True

    def is_ancestor(self, old: str, new: str) -> bool:
        """Whether `new` continues `old`."""
        if old == new:
            return True
        done = self.git.attempt("merge-base", "--is-ancestor", old, new)
        if done.exit_code not in (0, 1):
            raise GitFailed("merge-base", done.exit_code, done.text)
        return done.exit_code == 0

    def share_history(self, one: str, other: str) -> bool:
        return self.git.attempt("merge-base", one, other).exit_code == 0

    def ahead_of(self, known: str | None, head: str | None) -> int:
        """How many commits of `head` the other side has not."""
        if head is None or head == known:
            return 0
        exclusion = [f"^{known}"] if known is not None else []
        return int(self.git.line("rev-list", "--count", head, *exclusion))

    def add_objects(self, pack: bytes) -> None:
        """Store a pack's objects, each checked by git as well."""
        self.seam("before unpacking")
        # Each object that is unpacked is a file of its own, to be brought to the disk by itself.
        many = objects_in(pack) >= _STAYS_PACKED
        argv = ("index-pack", "--stdin", "--strict") if many else ("unpack-objects", "-q", "--strict")
        self.git.run(*argv, stdin=pack)
        self.seam("after unpacking")

    def write(self, objects: Sequence[tuple[str, bytes]]) -> None:
        self.add_objects(make_pack(objects))

    def pack_of(self, include: Sequence[str], exclude: Sequence[str], most_bytes: int) -> bytes | None:
        """A pack without deltas against what the other side has not got; None when it would be larger than that."""
        lines = [*include, *(f"^{oid}" for oid in exclude)]
        revisions = ("\n".join(lines) + "\n").encode()
        argv = ("pack-objects", "--revs", "--stdout", "-q", "--threads=1")
        return self.git.run_within(most_bytes, *argv, stdin=revisions)

    def begin(self, name: str) -> "Published":
        """An empty repository beside the real one, to be filled and then put in place by `put_in_place`."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = Published(self.folder, self.identity, self._running, self.seam, shared=self._shared)
        fresh.repository = self.folder / name
        fresh.git = Git(fresh.repository, self.identity, self._running)
        fresh.reader = ObjectReader(fresh.git)
        fresh._writer = RefWriter(fresh.git)
        fresh.trees = TreeValidator(fresh.reader.read, fresh.reader.size, shared=self._shared)
        fresh.git.run("init", "-q", "--bare", "--template=", "--initial-branch=main")
        with (fresh.repository / "config").open("a", encoding="utf-8") as config:
            config.write(_CONFIGURATION)
        return fresh

    def put_in_place(self, fresh: "Published") -> None:
        """Raises: MemoryUnavailable when the place has been taken meanwhile."""
        fresh.close()
        self.seam("before renaming the new repository")
        try:
            fresh.repository.rename(self.repository)
        except OSError as error:
            raise MemoryUnavailable(f"the new memory could not be put at {self.repository}: {error}") from error
        # What was found valid while it was made is so here.
        self.trees = TreeValidator(self.reader.read, self.reader.size, known=fresh.trees)
        sync_folder(self.folder)
        self.seam("after renaming the new repository")

    def fetch(self, url: str, environment: Mapping[str, str]) -> tuple[int | None, str]:
        """The remote's main into `FETCHED`, whatever it is. Exit code (None for a time-out) and what git said."""
        if (self.repository / f"{FETCHED}.lock").exists():
            _remove_stale(self.repository / f"{FETCHED}.lock", COMMAND_LIMIT_S * 2)
        self.seam("before fetching")
        argv = ("fetch", "-q", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", url, f"+{MAIN}:{FETCHED}")
        exit_code, text = self._network(environment, *argv, moves=self._pack_grows)
        # A shell counts in blocks, and git says nothing of its own of a limit that it has met.
        if exit_code != 0 and self._drop_half_fetched() >= _MAX_FETCHED_BYTES // 512 * 512:
            text = f"what the remote has is {MORE_THAN_A_FETCH} ({_MAX_FETCHED_BYTES:,} bytes)"
        self.seam("after fetching")
        return exit_code, text

    def push(self, url: str, environment: Mapping[str, str], commit: str) -> tuple[int | None, str]:
        """`commit` to the remote's main, never by force. As `fetch`."""
        self.seam("before pushing")
        answer = self._network(environment, "push", "--porcelain", "--no-verify", url, f"{commit}:{MAIN}")
        self.seam("after pushing")
        return answer

    def _drop_half_fetched(self) -> int:
        """What a fetch that failed has left, up to a gigabyte each time; the largest size. Nobody else writes packs
        under the lock."""
        largest_bytes = 0
        try:
            with self.lock():
                for half in (self.repository / "objects" / "pack").glob("tmp_pack_*"):
                    largest_bytes = max(largest_bytes, half.stat().st_size)
                    half.unlink()
        except (LockBusy, FileNotFoundError):
            # It goes after a day, with what a killed daemon leaves.
            pass
        return largest_bytes

    def _pack_grows(self) -> bool:
        """Whether a pack that is coming in has grown of late."""
        now_s, written_s = time.time(), 0.0
        for half in (self.repository / "objects" / "pack").glob("tmp_pack_*"):
            try:
                written_s = max(written_s, half.stat().st_mtime)
            except FileNotFoundError:
                pass
        return now_s - written_s < _STILL_S

    def _network(
        self, environment: Mapping[str, str], *argv: str, moves: Callable[[], bool] | None = None
    ) -> tuple[int | None, str]:
        done = self.git.attempt(*argv, environment=environment, max_file_bytes=_MAX_FETCHED_BYTES, moves=moves)
        return done.exit_code, done.text[-4000:]

    def close(self) -> None:
        """End the kept gits; the next question starts them again."""
        self.reader.close()
        self._writer.close()


def _remove_stale(lock: Path, age_s: float = _STALE_LOCK_S) -> None:
    try:
        left_s = lock.stat().st_mtime + age_s - time.time()
        if left_s > age_s or age_s <= _STALE_LOCK_S:
            time.sleep(max(0.0, min(left_s, _STALE_LOCK_S)))
        elif left_s > 0:
            return
        lock.unlink()
    except FileNotFoundError:
        pass


def _flock(fd: int, folder: Path) -> None:
    deadline = time.monotonic() + _LOCK_LIMIT_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise LockBusy(f"another process holds the memory in {folder}") from None
            time.sleep(0.01)
