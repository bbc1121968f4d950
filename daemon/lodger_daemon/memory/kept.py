"""What lies beside main so that nothing is lost: sides of conflicts, histories that were replaced, commits that did not
fit, and folders that were set aside. A ref goes by itself once main has all that it holds, here and at the remote; any
other a person may look at, bring back or drop.

Blocking; call under the agent's lock.
"""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from lodger_daemon.memory.core.wanted_paths import BadRequest
from lodger_daemon.memory.kept_gits import RefChange
from lodger_daemon.memory.published import MAIN, REMOTE, Published

_ABOVE: Final = "refs/lodger/"


class KeptKind(StrEnum):
    """By the name that their refs have below `refs/lodger`."""

    CONFLICT = "conflict"
    """Both sides of what two machines did not agree on."""
    RESCUE = "rescue"
    """Histories that were replaced."""
    PENDING = "pending"
    """The agent's commits that did not fit what came from elsewhere."""
    WRITERS = "writers"
    """What background writers have left."""


@dataclass(frozen=True, slots=True)
class Kept:
    """
    Args:
        refs: how many of each kind; none of a kind that has none.
        size_bytes: what only these refs hold, as it lies on the disk.
        checkouts: of a memory that the agent may only read, checkouts that somebody had changed all the same.
    """

    refs: dict[KeptKind, int]
    size_bytes: int
    checkouts: tuple[Path, ...]


def refs_of(*kinds: KeptKind) -> tuple[str, ...]:
    """The folders of their refs, as git lists them."""
    return tuple(f"{_ABOVE}{kind}" for kind in kinds)


def kept_beside_main(published: Published, head: str) -> Kept:
    """Raises: GitFailed."""
    listed = published.git.line("for-each-ref", "--format=%(refname)", *refs_of(*KeptKind)).splitlines()
    counts = {kind: sum(name.startswith(f"{_ABOVE}{kind}/") for name in listed) for kind in KeptKind}
    size_bytes = 0
    if listed:
        wanted = "".join(f"{name}\n" for name in (*listed, f"^{head}")).encode()
        size_bytes = int(published.git.line("rev-list", "--disk-usage", "--objects", "--stdin", stdin=wanted))
    checkouts = tuple(sorted(published.folder.glob("checkout-*")))
    return Kept({kind: count for kind, count in counts.items() if count}, size_bytes, checkouts)


@dataclass(frozen=True, slots=True)
class KeptRef:
    """
    Args:
        name: of its ref, below `refs/lodger/`.
        subject: first line of its commit's message.
    """

    name: str
    commit: str
    at_s: int
    subject: str


_DECIDED: Final = refs_of(KeptKind.CONFLICT, KeptKind.RESCUE, KeptKind.PENDING)
"""What is decided about here; background writers let go of their own."""
_SHOWN: Final = 1000
_FIELDS: Final = "%(refname)%00%(objectname)%00%(committerdate:unix)%00%(contents:subject)"


def list_kept(published: Published, _head: str = "") -> tuple[KeptRef, ...]:
    """Newest commits first, by their own word, and no more than `_SHOWN`. Raises: GitFailed."""
    return _listed(published, f"--count={_SHOWN}", *_DECIDED)


def _listed(published: Published, *which: str) -> tuple[KeptRef, ...]:
    argv = ("for-each-ref", "--sort=-committerdate", f"--format={_FIELDS}", *which)
    found = [line.split("\0") for line in published.git.line(*argv).splitlines() if line.count("\0") == 3]
    return tuple(
        KeptRef(name.removeprefix(_ABOVE), commit, int(at or 0), subject) for name, commit, at, subject in found
    )


def kept_named(published: Published, name: str) -> KeptRef:
    """Raises: BadRequest, GitFailed."""
    # Also what is off the end of the list: an agent may date its commits ahead.
    for one in _listed(published, *_DECIDED):
        if one.name == name:
            return one
    if name.startswith(f"{KeptKind.WRITERS}/"):
        raise BadRequest("what a background writer has left is decided about with `lodger memory writers`")
    raise BadRequest(f"nothing is kept as {name[:200]!r}")


def drop_kept(published: Published, name: str) -> KeptRef:
    """Let go of one for good, durably. What only it held is gone after the next upkeep. Raises: as `kept_named`."""
    one = kept_named(published, name)
    published.change_refs(RefChange(f"{_ABOVE}{one.name}", None, one.commit))
    return one


def drop_superseded(published: Published, *, has_remote: bool) -> int:
    """Let go of every ref whose commit main has, with all its history: here, and at the remote where there is one, as
    it was last seen. Says how many. Raises: GitFailed."""
    if not _any_refs(published):
        return 0
    everywhere = (MAIN, REMOTE) if has_remote else (MAIN,)
    if any(published.ref(name) is None for name in everywhere):
        return 0
    gone = _merged(published, MAIN)
    if gone and has_remote:
        gone = {name: commit for name, commit in _merged(published, REMOTE).items() if gone.get(name) == commit}
    published.seam("before letting go of what main has")
    published.change_refs(*(RefChange(name, None, commit) for name, commit in gone.items()))
    return len(gone)


def _merged(published: Published, into: str) -> dict[str, str]:
    listed = published.git.line("for-each-ref", f"--merged={into}", "--format=%(refname) %(objectname)", *_DECIDED)
    return dict(line.split() for line in listed.splitlines())


def _any_refs(published: Published) -> bool:
    """Starts no process."""
    folders = (published.repository / name for name in _DECIDED)
    return (published.repository / "packed-refs").exists() or any(
        path.is_file() for folder in folders for path in folder.rglob("*")
    )
