"""Taking in what was fetched: follow, replay, or keep both sides and say so. Call under the lock."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lodger_daemon.memory.core.first_files import FIRST_MESSAGE
from lodger_daemon.memory.holding import HELD, Apart, changed_paths, held_commit, put_apart
from lodger_daemon.memory.kept_gits import RefChange
from lodger_daemon.memory.published import MAIN, REMOTE, Published
from lodger_daemon.memory.replay import ReplayConflict, replay
from lodger_tools.validator.commit import validate_commit


@dataclass(frozen=True, slots=True)
class Followed:
    """What the remote has is part of main now, or was already."""

    moved: bool


@dataclass(frozen=True, slots=True)
class Conflicting:
    """Both sides are kept on conflict refs."""

    local: str
    remote: str
    paths: tuple[str, ...]
    parted: bool
    """Main holds everything else of both sides; otherwise nothing was taken in."""
    fresh: bool
    """Not the conflict that main was in already."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The remote does not continue what it had. Both sides are kept on rescue refs; nothing was followed."""

    local: str
    remote: str


@dataclass(frozen=True, slots=True)
class RemoteInvalid:
    remote: str
    findings: tuple[str, ...]


FollowResult: TypeAlias = Followed | Conflicting | Rewritten | RemoteInvalid


def follow(published: Published, fetched: str, known_paths: Sequence[str], now_s: int) -> FollowResult:
    """Main with `fetched` taken in, in one step. A crash leaves main as it was or as it should be.

    Args:
        known_paths: where main is in conflict with the remote already.
    """
    main, seen = published.head(), published.ref(REMOTE)
    if main is None or main == fetched:
        return _accept(published, fetched, fetched, main, seen)
    if seen is not None and not published.is_ancestor(seen, fetched):
        return _rescue(published, main, fetched, now_s)
    if published.is_ancestor(fetched, main):
        return _accept(published, main, fetched, main, seen)
    if seen is None and not published.share_history(main, fetched):
        if not _only_first_files(published, main):
            return _rescue(published, main, fetched, now_s)
        # Made here while the remote could not be asked; it holds nothing that anybody wrote.
        published.set_ref(f"refs/lodger/rescue/{now_s}-local", main)
        return _checked(published, fetched, fetched, main, seen)
    if published.is_ancestor(main, fetched):
        return _checked(published, fetched, fetched, main, seen)
    if held_commit(published) is not None:
        return _put_apart(published, fetched, main, known_paths, now_s)
    result = replay(published, fetched, main, None, now_s)
    if isinstance(result, ReplayConflict):
        return _put_apart(published, fetched, main, result.paths, now_s)
    return _checked(published, result.head, fetched, main, seen)


def _put_apart(published: Published, fetched: str, main: str, paths: Sequence[str], now_s: int) -> FollowResult:
    seen, held = published.ref(REMOTE), held_commit(published)
    if findings := validate_commit(published.reader.read(fetched)[1], (), published.trees):
        return RemoteInvalid(fetched, tuple(str(finding) for finding in findings))
    apart = put_apart(published, fetched, main, held, paths, now_s)
    fresh = held is None or apart is None or _is_another(published, held, apart, paths)
    if fresh:
        published.seam("before keeping both sides")
        name = f"refs/lodger/conflict/{main[:12]}-{fetched[:12]}"
        for side, oid in (("local", main), ("remote", fetched)):
            published.set_ref(f"{name}/{side}", oid)
        published.seam("after keeping both sides")
    if apart is None:
        return Conflicting(main, fetched, tuple(paths), parted=False, fresh=True)
    published.seam("before holding a conflict")
    published.change_refs(
        RefChange(MAIN, apart.head, main), RefChange(REMOTE, fetched, seen), RefChange(HELD, apart.held, held)
    )
    published.seam("after holding a conflict")
    if not apart.paths:
        return Followed(apart.head != main)
    return Conflicting(main, fetched, apart.paths, parted=True, fresh=fresh)


def _is_another(published: Published, held: str, apart: Apart, known_paths: Sequence[str]) -> bool:
    """Whether the conflict reaches further than before, or its other side has changed."""
    if set(apart.paths) - set(known_paths):
        return True
    old_base = published.commit(held).parents[0]
    return bool(set(changed_paths(published, old_base, apart.base)) & set(apart.paths))


def _checked(published: Published, head: str, fetched: str, main: str | None, seen: str | None) -> FollowResult:
    for commit in dict.fromkeys((fetched, head)):
        findings = validate_commit(published.reader.read(commit)[1], (), published.trees)
        if findings:
            return RemoteInvalid(fetched, tuple(str(finding) for finding in findings))
    return _accept(published, head, fetched, main, seen)


def _accept(published: Published, head: str, fetched: str, main: str | None, seen: str | None) -> FollowResult:
    if main is None and (findings := validate_commit(published.reader.read(head)[1], (), published.trees)):
        return RemoteInvalid(fetched, tuple(str(finding) for finding in findings))
    changes = [RefChange(MAIN, head, main), RefChange(REMOTE, fetched, seen)]
    held = published.ref(HELD)
    if held is not None and published.is_ancestor(held, fetched):
        # The other side decided as this one had it, maybe by the very same commit.
        changes.append(RefChange(HELD, None, held))
    published.change_refs(*changes)
    return Followed(head != main)


def _rescue(published: Published, main: str, fetched: str, now_s: int) -> Rewritten:
    known = published.folder / "published.git" / "refs" / "lodger" / "rescue"
    names = {path.name: published.ref(f"refs/lodger/rescue/{path.name}") for path in known.glob("*")}
    if not any(oid == fetched for name, oid in names.items() if name.endswith("-remote")):
        published.change_refs(
            RefChange(f"refs/lodger/rescue/{now_s}-{fetched[:8]}-remote", fetched, None),
            RefChange(f"refs/lodger/rescue/{now_s}-{fetched[:8]}-local", main, None),
        )
    return Rewritten(main, fetched)


def _only_first_files(published: Published, main: str) -> bool:
    commit = published.commit(main)
    return not commit.parents and commit.message == FIRST_MESSAGE.encode()
