"""A memory as one file, back from it, and as plain files. Blocking; call under the agent's lock.

A backup is a git bundle of main and of every ref that keeps what nobody may lose. It comes back as a commit on top of
what is here, so nothing here is lost by it either; where there is no memory it comes back whole.
"""

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from lodger_daemon.durable_files import name_durably
from lodger_daemon.memory.core.commits import new_commit
from lodger_daemon.memory.core.wanted_paths import BadRequest
from lodger_daemon.memory.errors import GitFailed
from lodger_daemon.memory.flat_trees import read_flat
from lodger_daemon.memory.kept import KeptKind, refs_of
from lodger_daemon.memory.kept_gits import RefChange
from lodger_daemon.memory.persons_change import PERSON
from lodger_daemon.memory.persons_view import commit_named
from lodger_daemon.memory.published import MAIN, Published
from lodger_daemon.memory.replay import store_commit
from lodger_tools.validator.commit import validate_commit
from lodger_tools.validator.findings import Finding
from lodger_tools.validator.objects import MODE_PROGRAM

_KEPT: Final = refs_of(*KeptKind)
"""Beside main; everything else says only where a machine is."""
_NAMES: Final = "refs/lodger/backup-of/"
"""A ref of this name in the bundle says whose memory it is."""
_HEAD: Final = re.compile(r"([0-9a-f]{40}) (refs/[!-~]{1,300})")
_MAGIC: Final = "# v2 git bundle"
_MAX_HEAD_BYTES: Final = 4 * 1024**2
"""Ten thousand refs have one."""
_LIMIT_S: Final = 900.0
"""A memory of 200 MB and 10,000 commits takes a fraction of it."""
_MAX_BYTES: Final = 4 * 1024**3
_MAKING: Final = "restoring.git"


@dataclass(frozen=True, slots=True)
class Backup:
    """What a file says of itself."""

    file: Path
    agent_id: str | None
    main: str
    refs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Restored:
    head: str
    changed: bool
    """False when main held the same files already."""


@dataclass(frozen=True, slots=True)
class NotRestored:
    """The file holds no valid memory; nothing has changed."""

    findings: tuple[Finding, ...]


RestoreResult: TypeAlias = Restored | NotRestored


def write_backup(published: Published, agent_id: str, file: Path) -> str:
    """Make `file`, which may not be there yet, and say which commit its main is. Durable when it returns.

    Raises: FileExistsError, OSError; GitFailed; BadRequest without a memory.
    """
    head = published.head()
    if head is None:
        raise BadRequest("there is no memory to back up")
    name = f"{_NAMES}{agent_id}"
    half = file.with_name(f".{file.name}.{os.getpid()}")
    # Made by us, so that nobody else can read what git writes.
    os.close(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        published.set_ref(name, head)
        _bundle(published, half, name)
        name_durably(half, file)
    finally:
        half.unlink(missing_ok=True)
        published.change_refs(RefChange(name, None, published.ref(name)))
    return head


def _bundle(published: Published, half: Path, name: str) -> None:
    listed = published.git.line("for-each-ref", "--format=%(refname)", *_KEPT).splitlines()
    argv = ("bundle", "create", "-q", "--version=2", "-", MAIN, name, *listed)
    with half.open("wb") as file:
        done = published.git.attempt(*argv, limit_s=_LIMIT_S, into=file)
    if done.exit_code != 0:
        raise GitFailed("bundle", done.exit_code, done.stderr.decode("utf-8", "replace"))


def read_backup(file: Path) -> Backup:
    """What a backup says of itself; git looks at the rest when it takes it in. Raises: BadRequest, OSError."""
    with file.open("rb") as opened:
        head, end, _ = opened.read(_MAX_HEAD_BYTES).partition(b"\n\n")
    magic, _, listed = head.decode("utf-8", "replace").partition("\n")
    matches = [_HEAD.fullmatch(line) for line in listed.splitlines()]
    refs = {match[2]: match[1] for match in matches if match is not None}
    if magic != _MAGIC or not end or len(refs) != len(matches) or MAIN not in refs:
        raise BadRequest(f"{file} is no whole backup of a memory")
    named = [name.removeprefix(_NAMES) for name in refs if name.startswith(_NAMES)]
    return Backup(file.resolve(), named[0] if len(named) == 1 else None, refs[MAIN], tuple(refs))


def restore(published: Published, backup: Backup, now_s: int) -> RestoreResult:
    """Bring a backup back. Raises: BadRequest for a file that git cannot use; MemoryFailure."""
    if published.exists():
        return _restore_over(published, backup, now_s)
    shutil.rmtree(published.folder / _MAKING, ignore_errors=True)
    fresh = published.begin(_MAKING)
    try:
        _take_in(fresh, backup, "refs/lodger/rescue")
        if findings := validate_commit(fresh.reader.read(backup.main)[1], (), fresh.trees):
            return NotRestored(findings)
        fresh.change_refs(RefChange(MAIN, backup.main, None))
        published.put_in_place(fresh)
        return Restored(backup.main, changed=True)
    finally:
        fresh.close()
        shutil.rmtree(published.folder / _MAKING, ignore_errors=True)


def _restore_over(published: Published, backup: Backup, now_s: int) -> RestoreResult:
    _take_in(published, backup, f"refs/lodger/rescue/{now_s}-backup")
    return bring_back(published, backup.main, now_s)


def bring_back(published: Published, commit: str, now_s: int) -> RestoreResult:
    """Make main's files those of a commit that is here, by a commit on top. Raises: RefMoved, GitFailed."""
    raw, main = published.reader.read(commit)[1], published.head()
    if findings := validate_commit(raw, (), published.trees):
        return NotRestored(findings)
    tree = published.commit(commit).tree
    if main is not None and published.commit(main).tree == tree:
        return Restored(main, changed=False)
    line, author = published.identity.line(now_s), PERSON.line(now_s)
    text = f"Restore the memory as it was at {commit[:12]}\n"
    head = store_commit(published, new_commit(tree, () if main is None else (main,), author, line, text))
    published.change_refs(RefChange(MAIN, head, main))
    return Restored(head, changed=True)


def _take_in(published: Published, backup: Backup, below: str) -> None:
    """Every ref of the backup, each checked by git, below a ref of ours."""
    specs = [f"+{MAIN}:{below}/main"]
    kept = [name for name in backup.refs if name.startswith(tuple(f"{prefix}/" for prefix in _KEPT))]
    specs += [f"+{name}:{below}/{name.removeprefix('refs/lodger/')}" for name in kept]
    argv = ("fetch", "-q", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", str(backup.file), *specs)
    done = published.git.attempt(*argv, limit_s=_LIMIT_S, max_file_bytes=_MAX_BYTES)
    if done.exit_code != 0:
        raise BadRequest(f"git cannot take in {backup.file}: {' '.join(done.text.split())[-300:]}")


def export_files(published: Published, head: str, revision: str, folder: Path) -> int:
    """Write a commit's files into `folder`, which may not be there yet, and say how many there are.

    Their names are safe on every system, because the commit is valid. Raises: BadRequest; OSError.
    """
    commit = commit_named(published, head, revision)
    if findings := validate_commit(published.reader.read(commit)[1], (), published.trees):
        raise BadRequest(f"this commit is no valid memory: {findings[0]}")
    files = read_flat(published, published.commit(commit).tree)
    folder.mkdir(mode=0o700)
    for path, (mode, oid) in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(place, flags, 0o700 if mode == MODE_PROGRAM else 0o600), "wb") as written:
            written.write(published.reader.read(oid)[1])
    return len(files)
