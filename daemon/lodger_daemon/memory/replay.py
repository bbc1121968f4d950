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


ReplayResult: TypeAlias = Replayed | ReplayConflict


def replay(published: Published, onto: str, tip: str, exclude: str | None, now_s: int) -> ReplayResult:
    """The commits of `tip` that `onto` has not, one after the other on top of `onto`; only objects are written.

    Args:
        exclude: commits up to this one are left out although `onto` has them only in another form.
    """
    head = onto
    with tempfile.TemporaryDirectory(prefix="lodger-replay-") as folder:
        graft = Path(folder) / "grafts"
        for commit, parent in _to_replay(published, onto, tip, exclude):
            if parent == head:
                head = commit
                continue
            step = _one(published, graft, head, commit, parent, now_s)
            if isinstance(step, ReplayConflict):
                return step
            head = step.head
    return Replayed(head)


def _to_replay(published: Published, onto: str, tip: str, exclude: str | None) -> Iterator[tuple[str, str | None]]:
    limits = [f"^{exclude}"] if exclude is not None else []
    argv = ("--reverse", "--topo-order", "--no-merges", "--cherry-mark", "--right-only", "--parents")
    for line in published.git.line("rev-list", *argv, f"{onto}...{tip}", *limits).splitlines():
        commit, *parents = line[1:].split()
        parent = parents[0] if parents else None
        # Commits that change nothing all look alike to the comparison of patches; none is "there already".
        if line.startswith("=") and not _changes_nothing(published, commit, parent):
            continue
        yield commit, parent


def _one(
    published: Published, graft: Path, onto: str, commit: str, parent: str | None, now_s: int
) -> Replayed | ReplayConflict:
    base = parent or _empty_root(published, now_s)
    graft.write_text(f"{onto} {base}\n{commit} {base}\n{base}\n", encoding="ascii")
    done = published.git.attempt(
        "-c",
        "advice.graftFileDeprecated=false",
        "merge-tree",
        "--write-tree",
        "-z",
        "--no-messages",
        onto,
        commit,
        environment={"GIT_GRAFT_FILE": os.fspath(graft)},
    )
    records = done.stdout.split(b"\0")
    if done.exit_code == 1:
        paths = {record.partition(b"\t")[2].decode("utf-8", "replace") for record in records[1:] if b"\t" in record}
        return ReplayConflict(commit, tuple(sorted(paths)))
    if done.exit_code != 0:
        raise GitFailed("merge-tree", done.exit_code, done.text)
    tree = records[0].decode().strip()
    if tree == published.commit(onto).tree and not _changes_nothing(published, commit, parent):
        return Replayed(onto)
    raw = replayed_commit(published.reader.read(commit)[1], tree, onto, published.identity.line(now_s))
    return Replayed(published.git.line("hash-object", "-t", "commit", "-w", "--stdin", stdin=raw))


def _changes_nothing(published: Published, commit: str, parent: str | None) -> bool:
    return published.commit(commit).tree == (published.commit(parent).tree if parent else EMPTY_TREE)


def _empty_root(published: Published, now_s: int) -> str:
    """A commit of nothing, as the base of a root commit; nothing refers to it afterwards."""
    line = published.identity.line(now_s)
    raw = new_commit(EMPTY_TREE, (), line, line, "nothing\n")
    published.write([("tree", b""), ("commit", raw)])
    return object_id("commit", raw)
