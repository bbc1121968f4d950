"""Putting commits on top of others without a work tree (MEMORY-NOTES.md section 4)."""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from lodger_daemon.memory.core.commits import new_commit, replayed_commit
from lodger_daemon.memory.core.pack import object_id
from lodger_daemon.memory.errors import GitFailed
from lodger_daemon.memory.flat_trees import files_of, read_flat
from lodger_daemon.memory.published import Published
from lodger_tools.validator.objects import EMPTY_TREE


@dataclass(frozen=True, slots=True)
class Replayed:
    """Every commit fits."""

    head: str


@dataclass(frozen=True, slots=True)
class ReplayConflict:
    """This commit and what it goes onto change the same places. Nothing is half-done."""

    commit: str
    paths: tuple[str, ...]
    tree: str = ""
    """What git made of both, with marks where they differ."""


ReplayResult: TypeAlias = Replayed | ReplayConflict


def replay(published: Published, onto: str, tip: str, exclude: str | None, now_s: int) -> ReplayResult:
    """The commits of `tip` that `onto` has not, one after the other on top of `onto`; only objects are written.

    Args:
        exclude: commits up to this one are left out although `onto` has them only in another form.
    """
    head = onto
    with tempfile.TemporaryDirectory(prefix="lodger-replay-") as folder:
        graft = Path(folder) / "grafts"
        for commit, parent in to_replay(published, onto, tip, exclude):
            step = replay_one(published, graft, head, commit, parent, now_s)
            if isinstance(step, ReplayConflict):
                # A merge may have settled what its single commits do not agree on.
                whole = _with_merges(published, onto, tip, exclude, onto, now_s)
                return whole if isinstance(whole, Replayed) else step
            head = step.head
    return _with_merges(published, onto, tip, exclude, head, now_s) or Replayed(head)


def to_replay(published: Published, onto: str, tip: str, exclude: str | None) -> Iterator[tuple[str, str | None]]:
    """Commits of `tip` that `onto` has not, each with its parent, oldest first; merges are left out."""
    limits = [f"^{exclude}"] if exclude is not None else []
    argv = ("--reverse", "--topo-order", "--no-merges", "--cherry-mark", "--right-only", "--parents")
    for line in published.git.line("rev-list", *argv, f"{onto}...{tip}", *limits).splitlines():
        commit, *parents = line[1:].split()
        parent = parents[0] if parents else None
        # Commits that change nothing all look alike to the comparison of patches; none is "there already".
        if line.startswith("=") and not _changes_nothing(published, commit, parent):
            continue
        yield commit, parent


def replay_one(
    published: Published,
    graft: Path,
    onto: str,
    commit: str,
    parent: str | None,
    now_s: int,
    *,
    as_rebase: bool = True,
) -> Replayed | ReplayConflict:
    """One commit on top of `onto`.

    Args:
        graft: a file that may be written for git.
        as_rebase: as for `merged`.
    """
    if parent == onto:
        return Replayed(commit)
    base = parent or _empty_root(published, now_s)
    graft.write_text(f"{onto} {base}\n{commit} {base}\n{base}\n", encoding="ascii")
    tree, paths = merged(published, onto, commit, graft, as_rebase=as_rebase)
    if paths:
        return ReplayConflict(commit, paths, tree)
    if tree == published.commit(onto).tree and not _changes_nothing(published, commit, parent):
        return Replayed(onto)
    raw = replayed_commit(published.reader.read(commit)[1], tree, onto, published.identity.line(now_s))
    return Replayed(store_commit(published, raw))


def _with_merges(
    published: Published, onto: str, tip: str, exclude: str | None, head: str, now_s: int
) -> ReplayResult | None:
    """What people or agents decided in merges goes on top of `head`, as one commit: replay leaves merges out.

    None when there is no such merge.
    """
    decided = deciding_merges(published, onto, tip, exclude)
    if not decided:
        return None
    tree, paths = merged(published, onto, tip)
    if paths:
        return ReplayConflict(decided[0], paths, tree)
    if tree == published.commit(head).tree:
        return Replayed(head)
    raw = replayed_commit(published.reader.read(decided[0])[1], tree, head, published.identity.line(now_s))
    return Replayed(store_commit(published, raw))


def deciding_merges(published: Published, onto: str, tip: str, exclude: str | None) -> list[str]:
    """Merges among the commits of `tip` that `onto` has not which hold more than git makes of their parents."""
    limits = [f"^{exclude}"] if exclude is not None else []
    argv = ("--merges", "--right-only", "--parents", f"{onto}...{tip}", *limits)
    merges = [line.split() for line in published.git.line("rev-list", *argv).splitlines()]
    return [commit for commit, *parents in merges if not _merges_by_itself(published, commit, parents)]


def _merges_by_itself(published: Published, merge: str, parents: list[str]) -> bool:
    if len(parents) != 2:
        return False
    ours, theirs = parents
    tree, paths = merged(published, ours, theirs)
    return not paths and tree == published.commit(merge).tree


def merged(
    published: Published, ours: str, theirs: str, graft: Path | None = None, *, as_rebase: bool = True
) -> tuple[str, tuple[str, ...]]:
    """The tree of both, and the paths where they cannot be put together.

    Args:
        as_rebase: exactly the paths that rebase would name. Otherwise every path where a version would be lost or go
            elsewhere, and none that neither side has: what one side adds to a folder that the other moved stays where
            it was written, and a file that one side moved and the other wrote is in conflict where it was written, too.
    """
    environment = {} if graft is None else {"GIT_GRAFT_FILE": os.fspath(graft)}
    done = published.git.attempt(
        "-c",
        "advice.graftFileDeprecated=false",
        *(() if as_rebase else ("-c", "merge.directoryRenames=false")),
        "merge-tree",
        "--write-tree",
        "-z",
        "--no-messages",
        "--allow-unrelated-histories",
        ours,
        theirs,
        environment=environment,
    )
    if done.exit_code not in (0, 1):
        raise GitFailed("merge-tree", done.exit_code, done.text)
    tree, *records = done.stdout.split(b"\0")
    made = tree.decode().strip()
    paths = {record.partition(b"\t")[2].decode("utf-8", "replace") for record in records if b"\t" in record}
    if paths and not as_rebase:
        paths |= _placed_nowhere(published, made, ours, theirs, environment)
    return made, tuple(sorted(paths))


def _placed_nowhere(published: Published, made: str, ours: str, theirs: str, environment: dict[str, str]) -> set[str]:
    """Paths that a side has written and git has put nowhere: it took the file for one that the other side moved."""
    base = published.git.attempt("merge-base", ours, theirs, environment=environment)
    before = files_of(published, base.stdout.decode().strip()) if base.exit_code == 0 else {}
    placed = read_flat(published, made)
    sides = files_of(published, ours), files_of(published, theirs)
    return {path for side in sides for path, leaf in side.items() if leaf != before.get(path) and path not in placed}


def store_commit(published: Published, raw: bytes) -> str:
    """Its id."""
    return published.git.line("hash-object", "-t", "commit", "-w", "--stdin", stdin=raw)


def _changes_nothing(published: Published, commit: str, parent: str | None) -> bool:
    return published.commit(commit).tree == (published.commit(parent).tree if parent else EMPTY_TREE)


def _empty_root(published: Published, now_s: int) -> str:
    """A commit of nothing, as the base of a root commit; nothing refers to it afterwards."""
    line = published.identity.line(now_s)
    raw = new_commit(EMPTY_TREE, (), line, line, "nothing\n")
    published.write([("tree", b""), ("commit", raw)])
    return object_id("commit", raw)
