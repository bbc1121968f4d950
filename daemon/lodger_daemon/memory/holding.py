"""Commits that do not fit what came from elsewhere stay here, on top of all that fits, until somebody decides.

Main is then what may be pushed (`base`) with one held commit on it: the checkout and the prompt show this machine's
version of the paths in conflict, the remote keeps its own, and everything else goes on moving both ways.
Blocking; call under the agent's lock. After a crash main is as before or as after.
"""

import tempfile
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lodger_daemon.memory.core.commits import author_of, new_commit
from lodger_daemon.memory.flat_trees import FlatTree, files_of, read_flat, write_flat
from lodger_daemon.memory.kept_gits import RefChange
from lodger_daemon.memory.published import MAIN, Published
from lodger_daemon.memory.replay import ReplayConflict, deciding_merges, replay_one, store_commit, to_replay
from lodger_tools.validator.commit import validate_commit

HELD: Final = "refs/lodger/held"
"""The held commit, while there is one; its parent is what may be pushed."""


@dataclass(frozen=True, slots=True)
class Apart:
    """Local commits put apart by whether they fit."""

    base: str
    head: str
    paths: tuple[str, ...]
    """Where both sides differ; empty when nothing has to be held, and then head is base."""

    @property
    def held(self) -> str | None:
        return self.head if self.paths else None


@dataclass(frozen=True, slots=True)
class Arranged:
    pushable: str
    paths: tuple[str, ...]
    """Still in conflict."""
    settled: tuple[str, ...]
    """Of those, the ones this machine's agent has written since."""


def held_commit(published: Published) -> str | None:
    """The held commit, if main still stands on it."""
    held, main = published.ref(HELD), published.head()
    if held is None or main is None or not published.is_ancestor(held, main):
        return None
    return held


def arrange(published: Published, known: Sequence[str], settled: Sequence[str], now_s: int) -> Arranged | None:
    """What may be pushed of main, after new commits have been put before the held one or have decided its conflict.

    A conflict is decided when each of its paths has been written by a later commit, or by a commit without any change.
    None when there is no memory.

    Args:
        known: the paths in conflict as last noted; without them, all that the held commit changes.
    """
    main, held = published.head(), held_commit(published)
    if main is None:
        return None
    if held is None:
        return Arranged(main, (), ())
    base = published.commit(held).parents[0]
    differing = changed_paths(published, base, held)
    # A path that both sides have alike by now is in conflict no more, whatever was noted before.
    paths = tuple(path for path in known if path in differing) if known else differing
    written = set(settled)
    for commit in published.git.line("rev-list", f"{held}..{main}").split():
        written |= set(_written(published, commit)) or set(paths)
    left = tuple(path for path in paths if path not in written)
    if not left:
        published.seam("before ending a conflict")
        published.change_refs(RefChange(HELD, None, held))
        published.seam("after ending a conflict")
        return Arranged(main, (), ())
    decided = tuple(path for path in paths if path in written)
    if held == main:
        return Arranged(base, paths, decided)
    apart = put_apart(published, base, main, held, paths, now_s)
    if apart is None:
        return Arranged(base, paths, decided)
    published.seam("before putting commits below a held one")
    published.change_refs(RefChange(MAIN, apart.head, main), RefChange(HELD, apart.held, held))
    published.seam("after putting commits below a held one")
    return Arranged(apart.base, apart.paths, decided)


def put_apart(
    published: Published, onto: str, tip: str, held: str | None, known: Sequence[str], now_s: int
) -> Apart | None:
    """The commits of `tip` that fit on `onto`, and one commit on top for those that do not.

    Nothing but objects is written. None when what comes out would not be valid, or when a merge
    decided something that single commits do not hold: then both sides stay as they are.

    Args:
        held: the commit that is held already.
        known: paths in conflict already.
    """
    if deciding_merges(published, onto, tip, None):
        return None
    base, waiting, paths = onto, list[tuple[str, str | None]](), set(known)
    with tempfile.TemporaryDirectory(prefix="lodger-apart-") as folder:
        graft = Path(folder) / "grafts"
        for commit, parent in to_replay(published, onto, tip, None):
            step = (
                None if commit == held else replay_one(published, graft, base, commit, parent, now_s, as_rebase=False)
            )
            if step is None or isinstance(step, ReplayConflict):
                waiting.append((commit, parent))
                paths |= set() if step is None else set(step.paths)
            else:
                base = step.head
        head = base
        for commit, parent in waiting:
            step = replay_one(published, graft, head, commit, parent, now_s, as_rebase=False)
            if isinstance(step, ReplayConflict):
                paths |= set(step.paths)
                head = _with_ours(published, head, step, parent, now_s)
            else:
                head = step.head
    joined = _joined(published, base, head, [commit for commit, _ in waiting], now_s)
    left = _different(published, base, joined, paths)
    apart = Apart(base, joined, left) if left else Apart(joined, joined, ())
    return apart if _valid(published, onto, (apart.base, apart.head)) else None


def _with_ours(published: Published, onto: str, conflict: ReplayConflict, parent: str | None, now_s: int) -> str:
    """What git could put together, and this machine's version of every path where it could not."""
    theirs, ours = files_of(published, onto), files_of(published, conflict.commit)
    # Names that neither side has are git's own, for one of two versions of a file.
    files = {path: leaf for path, leaf in read_flat(published, conflict.tree).items() if path in theirs or path in ours}
    for path in conflict.paths:
        if path in ours:
            files[path] = ours[path]
        else:
            files.pop(path, None)
    before = {} if parent is None else files_of(published, parent)
    # Whatever git made of it: what the other side added, no commit here can have deleted.
    files = {path: leaf for path, leaf in theirs.items() if path not in before} | files
    tree = write_flat(published, without_files_in_files(files, ours))
    return one_commit(published, tree, onto, [conflict.commit], now_s)


def without_files_in_files(files: FlatTree, ours: Collection[str]) -> FlatTree:
    """A file of one side may stand where the other has a folder: ours stays."""
    kept = dict(files)
    for path in files:
        for above in _above(path):
            if above in files:
                kept.pop(path if above in ours else above, None)
    return kept


def _above(path: str) -> Iterable[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _joined(published: Published, base: str, head: str, commits: Sequence[str], now_s: int) -> str:
    """One commit on `base` with everything of `head`."""
    if head == base or published.commit(head).tree == published.commit(base).tree:
        return base
    return one_commit(published, published.commit(head).tree, base, commits, now_s)


def one_commit(published: Published, tree: str, parent: str, commits: Sequence[str], now_s: int) -> str:
    """A commit in the place of these: by the last one's author, with everybody's message."""
    texts = dict.fromkeys(_message(published, commit) for commit in commits)
    author = author_of(published.reader.read(commits[-1])[1])
    message = "\n\n".join(texts)[-60_000:] + "\n"
    return store_commit(published, new_commit(tree, (parent,), author, published.identity.line(now_s), message))


def _message(published: Published, commit: str) -> str:
    known = published.commit(commit)
    try:
        return known.message.decode(known.encoding or "utf-8", "replace").strip()
    except LookupError:
        return known.message.decode("utf-8", "replace").strip()


def _different(published: Published, base: str, head: str, paths: Iterable[str]) -> tuple[str, ...]:
    changed = set(changed_paths(published, base, head)) if base != head else set()
    return tuple(sorted(changed & set(paths)))


def changed_paths(published: Published, old: str, new: str) -> tuple[str, ...]:
    argv = ("diff-tree", "-r", "-z", "--no-renames", "--name-only", old, new)
    return tuple(path for path in published.git.run(*argv).decode("utf-8", "replace").split("\0") if path)


def _written(published: Published, commit: str) -> tuple[str, ...]:
    parents = published.commit(commit).parents
    return changed_paths(published, parents[0], commit) if parents else ()


def _valid(published: Published, onto: str, commits: Iterable[str]) -> bool:
    return not any(
        validate_commit(published.reader.read(commit)[1], (), published.trees)
        for commit in dict.fromkeys(commits)
        if commit != onto
    )
