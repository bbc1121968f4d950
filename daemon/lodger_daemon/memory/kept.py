"""What lies beside main so that nothing is lost: sides of conflicts, histories that were replaced, commits that did not
fit, and folders that were set aside. None of it is ever thrown away, so it is counted for the person to see.

Blocking; call under the agent's lock.
"""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from lodger_daemon.memory.published import Published

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
