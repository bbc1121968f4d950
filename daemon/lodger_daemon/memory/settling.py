"""What a person decides about a conflict, carried out on published memory. Blocking; call under the agent's lock.

Refs move all or none, by compare-and-swap: after a crash a conflict is as before or as decided. What was decided
against stays in history, or on a ref below refs/lodger/conflict or refs/lodger/rescue.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias, assert_never

from lodger_daemon.memory.core.commits import new_commit
from lodger_daemon.memory.core.sync_state import Conflict
from lodger_daemon.memory.core.wanted_paths import BadRequest
from lodger_daemon.memory.flat_trees import FlatTree, Leaf, files_of, read_flat, write_flat
from lodger_daemon.memory.holding import (
    HELD,
    arrange,
    changed_paths,
    held_commit,
    one_commit,
    without_files_in_files,
)
from lodger_daemon.memory.kept_gits import RefChange
from lodger_daemon.memory.persons_change import PERSON
from lodger_daemon.memory.published import CHECKOUT, MAIN, REMOTE, Published
from lodger_daemon.memory.replay import merged, store_commit
from lodger_tools.validator.commit import validate_commit
from lodger_tools.validator.findings import Finding
from lodger_tools.validator.objects import MODE_FILE


class Side(StrEnum):
    OURS = "ours"
    """This machine's version."""
    THEIRS = "theirs"


class Whole(StrEnum):
    """What becomes of two histories of which neither continues the other."""

    OURS = "ours"
    """Files as they are here, on top of both histories."""
    THEIRS = "theirs"
    """The remote's; what is here stays on a rescue ref."""
    BOTH = "both"
    """Everything of both; where they differ it is an ordinary conflict, to be settled by path."""


Choice: TypeAlias = Side | bytes
"""A side, or what shall stand in the file."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person said."""

    choices: Mapping[str, Choice] = field(default_factory=dict)
    """By path."""
    rest: Whole | Side | None = None
    """Of every other path, or of a history as a whole; None leaves the others in conflict."""


@dataclass(frozen=True, slots=True)
class Settled:
    """Carried out."""

    head: str
    left: tuple[str, ...]
    """Paths still in conflict."""


@dataclass(frozen=True, slots=True)
class NothingToSettle:
    """There is no such conflict, or no more."""


@dataclass(frozen=True, slots=True)
class NotSettled:
    """What would come out is no valid memory; nothing has changed."""

    findings: tuple[Finding, ...]


SettleResult: TypeAlias = Settled | NothingToSettle | NotSettled


def settle(published: Published, conflict: Conflict | None, decision: Decision, now_s: int) -> SettleResult:
    """Carry a decision out. Raises: BadRequest when it does not fit the conflict; RefMoved, GitFailed."""
    rest = decision.rest
    if conflict is not None and conflict.rewritten:
        if decision.choices or rest is None:
            raise BadRequest("the remote's history was replaced; decide as a whole: ours, theirs or both")
        return settle_rewritten(published, conflict.remote, Whole(rest), now_s)
    if rest is Whole.BOTH:
        raise BadRequest("two versions of one place cannot be put together by machine: say what the file shall hold")
    side = None if rest is None else Side(rest)
    if conflict is not None and conflict.at_import:
        return settle_import(published, conflict.local, decision.choices, side, now_s)
    known, written = ((), ()) if conflict is None else (conflict.paths, conflict.settled)
    return settle_paths(published, known, written, decision.choices, side, now_s)


def settle_paths(
    published: Published,
    known: Sequence[str],
    written: Sequence[str],
    choices: Mapping[str, Choice],
    rest: Side | None,
    now_s: int,
) -> SettleResult:
    """Decide paths that are held. Once every path is decided nothing is held any more; until then, what is decided may
    be pushed.

    Args:
        known: the paths in conflict as last noted.
        written: of those, the ones the agent has written since.
        rest: for every path that is not in `choices`; None leaves those in conflict.

    Raises: BadRequest for a path that is not in conflict; RefMoved, GitFailed.
    """
    arranged = arrange(published, known, written, now_s)
    held, main = held_commit(published), published.head()
    if arranged is None or main is None or held is None:
        return NothingToSettle()
    wanted = _for_each(arranged.paths, arranged.settled, choices, rest)
    base = published.commit(held).parents[0]
    theirs, ours = files_of(published, base), files_of(published, main)
    decided = _leaves(published, wanted, ours, theirs)
    left = tuple(path for path in arranged.paths if path not in wanted and path not in arranged.settled)
    text = f"Settle a conflict in {', '.join(sorted(wanted)[:12])}"
    if not left:
        head = _person_commit(published, _with(published, ours, decided), (main,), text, now_s)
        return _put(published, (head,), (RefChange(MAIN, head, main), RefChange(HELD, None, held)), ())
    pushable = _person_commit(published, _with(published, theirs, decided), (base,), text, now_s)
    replaced = published.git.line("rev-list", "--reverse", f"{base}..{main}").split()
    head = one_commit(published, _with(published, ours, decided), pushable, replaced, now_s)
    kept = f"refs/lodger/conflict/{main[:12]}-{base[:12]}/local"
    changes = (RefChange(kept, main, published.ref(kept)), RefChange(MAIN, head, main), RefChange(HELD, head, held))
    return _put(published, (pushable, head), changes, left)


def settle_rewritten(published: Published, fetched: str, choice: Whole, now_s: int) -> SettleResult:
    """Decide about a remote whose history was replaced by `fetched`. Both sides are on rescue refs when it returns.

    Raises: RefMoved, GitFailed.
    """
    main, seen = published.head(), published.ref(REMOTE)
    if main is None or seen == fetched or not published.has(fetched):
        return NothingToSettle()
    held = held_commit(published)
    rescued = [
        RefChange(name, oid, published.ref(name))
        for side, oid in (("local", main), ("remote", fetched))
        for name in (f"refs/lodger/rescue/{now_s}-{fetched[:8]}-{side}",)
    ]
    local = main if held is None else published.commit(held).parents[0]
    differing: tuple[str, ...] = ()
    match choice:
        case Whole.THEIRS:
            base = fetched
        case Whole.OURS:
            base = _ours_on_both(published, fetched, local, now_s)
        case Whole.BOTH:
            base, differing = _both(published, fetched, local, now_s)
        case _:
            assert_never(choice)
    head, left = base, differing
    if choice is not Whole.THEIRS:
        head, left = _held_again(published, base, local, main, differing, now_s)
    stored = published.ref(HELD)
    changes = (
        *rescued,
        RefChange(MAIN, head, main),
        RefChange(REMOTE, fetched, seen),
        RefChange(HELD, head if left else None, stored),
    )
    return _put(published, dict.fromkeys((fetched, base, head)), changes, left)


def settle_import(
    published: Published, tip: str, choices: Mapping[str, Choice], rest: Side | None, now_s: int
) -> SettleResult:
    """Decide about commits of the checkout, up to `tip`, that were kept but not published. Every path must be decided.

    Raises: BadRequest; RefMoved, GitFailed.
    """
    main, seen = published.head(), published.ref(CHECKOUT)
    if main is None or not published.has(tip) or published.is_ancestor(tip, main):
        return NothingToSettle()
    tree, paths = merged(published, main, tip, as_rebase=False)
    wanted = _for_each(paths, (), choices, rest)
    if open_paths := [path for path in paths if path not in wanted]:
        raise BadRequest(f"decide all of these at once: {', '.join(open_paths[:12])}")
    theirs, ours = files_of(published, main), files_of(published, tip)
    together = _together(published, tree, theirs, ours)
    made = _with(published, together, _leaves(published, wanted, ours, theirs))
    text = f"Settle a conflict in {', '.join(sorted(wanted)[:12])}" if wanted else "Join two lines of memory"
    head = _person_commit(published, made, (main, tip), text, now_s)
    return _put(published, (head,), (RefChange(MAIN, head, main), RefChange(CHECKOUT, tip, seen)), ())


def _for_each(
    paths: Sequence[str], written: Sequence[str], choices: Mapping[str, Choice], rest: Side | None
) -> dict[str, Choice]:
    for path in choices:
        if path not in paths:
            raise BadRequest(f"{path[:200]} is not in conflict; in conflict are {', '.join(paths[:12])}")
    others = {path: rest for path in paths if rest is not None and path not in written}
    return {**others, **choices}


def _leaves(
    published: Published, wanted: Mapping[str, Choice], ours: FlatTree, theirs: FlatTree
) -> dict[str, Leaf | None]:
    found: dict[str, Leaf | None] = {}
    for path, choice in wanted.items():
        match choice:
            case Side.OURS:
                found[path] = ours.get(path)
            case Side.THEIRS:
                found[path] = theirs.get(path)
            case bytes():
                mode = (ours.get(path) or theirs.get(path) or (MODE_FILE, ""))[0]
                found[path] = (mode, published.git.line("hash-object", "-w", "--stdin", stdin=choice))
            case _:
                assert_never(choice)
    return found


def _with(published: Published, files: FlatTree, decided: Mapping[str, Leaf | None]) -> str:
    """The tree of these files with what was decided."""
    changed = {path: leaf for path, leaf in files.items() if path not in decided}
    here = {path: leaf for path, leaf in decided.items() if leaf is not None}
    return write_flat(published, without_files_in_files(changed | here, here))


def _person_commit(published: Published, tree: str, parents: Sequence[str], text: str, now_s: int) -> str:
    """On the parents; the only parent itself when nothing changes."""
    if len(parents) == 1 and published.commit(parents[0]).tree == tree:
        return parents[0]
    raw = new_commit(tree, parents, PERSON.line(now_s), published.identity.line(now_s), f"{text}\n")
    return store_commit(published, raw)


def _ours_on_both(published: Published, fetched: str, local: str, now_s: int) -> str:
    if published.is_ancestor(fetched, local):
        return local
    text = "Keep this machine's memory over a remote whose history was replaced"
    return _person_commit(published, published.commit(local).tree, (fetched, local), text, now_s)


def _both(published: Published, fetched: str, local: str, now_s: int) -> tuple[str, tuple[str, ...]]:
    """One commit on both histories, the remote's files where they differ, and the paths where they do.

    As it continues both, machines that know either history follow it.
    """
    if published.is_ancestor(fetched, local):
        return local, ()
    if published.is_ancestor(local, fetched):
        return fetched, ()
    tree, paths = merged(published, fetched, local, as_rebase=False)
    theirs, ours = files_of(published, fetched), files_of(published, local)
    together = _together(published, tree, theirs, ours)
    made = _with(published, together, {path: theirs.get(path) for path in paths})
    return _person_commit(published, made, (fetched, local), "Put two histories together", now_s), paths


def _together(published: Published, tree: str, theirs: FlatTree, ours: FlatTree) -> FlatTree:
    """What git made of both, without the names it makes up for one of two versions of a file."""
    return {path: leaf for path, leaf in read_flat(published, tree).items() if path in theirs or path in ours}


def _held_again(
    published: Published, base: str, local: str, main: str, differing: Sequence[str], now_s: int
) -> tuple[str, tuple[str, ...]]:
    """This machine's version of what differs, and of what was held already, as one commit on `base`."""
    ours = files_of(published, main)
    paths = dict.fromkeys((*differing, *(changed_paths(published, local, main) if local != main else ())))
    tree = _with(published, files_of(published, base), {path: ours.get(path) for path in paths})
    if tree == published.commit(base).tree:
        return base, ()
    head = one_commit(published, tree, base, [main], now_s)
    return head, tuple(sorted(set(changed_paths(published, base, head)) & set(paths)))


def _put(
    published: Published, commits: Sequence[str] | Mapping[str, None], changes: Sequence[RefChange], left: Sequence[str]
) -> SettleResult:
    for commit in commits:
        if findings := validate_commit(published.reader.read(commit)[1], (), published.trees):
            return NotSettled(findings)
    published.change_refs(*changes)
    return Settled(published.head() or "", tuple(left))
