"""From a writer's commits to main: taken in to a ref of their own first, then put on top of what is published.

Blocking; call under the agent's lock. After a crash at any moment calling again does the rest.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, TypeAlias

from lodger_daemon.memory.core.pack import BadPack, scan_pack
from lodger_daemon.memory.core.writers import WriterId
from lodger_daemon.memory.holding import changed_paths
from lodger_daemon.memory.importing import PACK_LIMITS, Incoming, join_commits, store_from_outside
from lodger_daemon.memory.kept_gits import RefChange
from lodger_daemon.memory.published import FETCHED, MAIN, Published
from lodger_daemon.memory.replay import ReplayConflict, replay
from lodger_tools.validator.commit import validate_commit
from lodger_tools.validator.findings import Finding, Rule

WRITERS: Final = "refs/lodger/writers/"
"""A writer's last commit, as long as it may be merged."""
_BASES: Final = "refs/lodger/bases/"
"""What a writer began with, until it has ended: main may go another way meanwhile."""
_DONE: Final = "refs/lodger/merged/"
"""Main with a writer's commits, from the moment it moved until that is on record."""


@dataclass(frozen=True, slots=True)
class TakenIn:
    tip: str


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing was changed."""

    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Landed:
    """Main holds the writer's commits."""

    head: str


@dataclass(frozen=True, slots=True)
class Apart:
    """Main says something else at these paths. Nothing was changed."""

    paths: tuple[str, ...]


MergeResult: TypeAlias = Landed | Apart | Refused


def take_in(published: Published, writer: WriterId, pack: bytes, base: str, tip: str, now_s: int) -> TakenIn | Refused:
    """Validate what the box sent and store it. A valid tip above commits that are not becomes one commit on `base`."""
    try:
        objects = scan_pack(pack, PACK_LIMITS)
    except BadPack as error:
        return _refused(str(error))
    incoming = Incoming(published, objects)
    new = incoming.new_commits(tip) if tip in objects else []
    if isinstance(new, Finding):
        return Refused((new,))
    # Published holds more than main, and what was fetched or kept for a person has its own ways in. A merge that took
    # it as a parent would decide a conflict without changing a file.
    named = incoming.stands_on(new) if new else (tip,)
    if _theirs(published, new) or not all(_began_with(published, base, commit) for commit in named):
        return _refused("it stands on a commit that its tree did not begin with")
    if not new:
        return _name(published, writer, tip)
    by_commit = [incoming.findings(commit) for commit in new]
    # Against what it began with: main may have changed locked files since, which is no fault of the writer's.
    locked = validate_commit(incoming.read(tip)[1], (published.commit(base).tree,), incoming.trees)
    if by_commit[-1] or locked:
        return Refused(by_commit[-1] or locked)
    if refused := store_from_outside(published, pack):
        return Refused((refused,))
    return _name(published, writer, join_commits(published, incoming, new, base, now_s) if any(by_commit) else tip)


def merge(
    published: Published, writer: WriterId, tip: str, base: str, in_conflict: Collection[str], now_s: int
) -> MergeResult:
    """Put the writer's commits on top of main.

    Args:
        in_conflict: paths at which a conflict waits for somebody who knows of it; they are not written to.

    Raises: RefMoved, GitFailed.
    """
    main, done = published.head(), published.ref(_DONE + writer)
    if main is None:
        return _refused("there is no main any more")
    if done is not None and published.is_ancestor(done, main):
        return Landed(done)
    if published.is_ancestor(tip, main):
        return Landed(main)
    head = tip
    if not published.is_ancestor(main, tip):
        result = replay(published, main, tip, base, now_s)
        if isinstance(result, ReplayConflict):
            return Apart(result.paths)
        head = result.head
    if head == main:
        return Landed(main)
    disputed = tuple(path for path in changed_paths(published, main, head) if path in in_conflict)
    if disputed:
        return Apart(disputed)
    # Two valid states can make an invalid one, and files may have been locked since the writer began.
    findings = validate_commit(published.reader.read(head)[1], (published.commit(main).tree,), published.trees)
    if findings:
        return Refused(findings)
    published.seam("before merging a writer")
    published.change_refs(RefChange(MAIN, head, main), RefChange(_DONE + writer, head, done))
    published.seam("after merging a writer")
    return Landed(head)


def hold_base(published: Published, writer: WriterId, base: str) -> None:
    """Keep what a writer begins with from being dropped as what nothing needs."""
    published.set_ref(_BASES + writer, base)


def let_go(published: Published, writer: WriterId, *, keep_tip: bool, keep_base: bool) -> None:
    """Remove the refs of a writer whose end is on record."""
    names = (_DONE + writer, *(() if keep_tip else (WRITERS + writer,)), *(() if keep_base else (_BASES + writer,)))
    published.change_refs(*(RefChange(name, None, published.ref(name)) for name in names))


def writers_with_refs(published: Published) -> tuple[WriterId, ...]:
    lines = published.git.line("for-each-ref", "--format=%(refname)", WRITERS, _DONE, _BASES).splitlines()
    return tuple(dict.fromkeys(WriterId(line.rpartition("/")[2]) for line in lines))


def _began_with(published: Published, base: str, commit: str) -> bool:
    return published.has_commit(commit) and published.is_ancestor(commit, base)


def _theirs(published: Published, commits: Collection[str]) -> bool:
    """Whether one of these is the remote's, word for word."""
    fetched = published.ref(FETCHED)
    return fetched is not None and any(
        published.has_commit(commit) and published.is_ancestor(commit, fetched) for commit in commits
    )


def _name(published: Published, writer: WriterId, tip: str) -> TakenIn:
    published.seam("before naming a writer's commit")
    published.set_ref(WRITERS + writer, tip)
    published.seam("after naming a writer's commit")
    return TakenIn(tip)


def _refused(text: str) -> Refused:
    return Refused((Finding("", Rule.OBJECT, text),))
