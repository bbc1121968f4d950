"""What a box says about a folder, made into answers: names, trees, search results, branches.

All of it comes out of a box and is data: names may hold anything but a NUL.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

TREE_LIMIT: Final = 5000
"""Entries of one tree (PROTOCOL.md 4.4)."""
SEARCH_LIMIT: Final = 200
"""Results of one search (PROTOCOL.md 4.4)."""
HIDDEN_NAMES: Final = frozenset({".git", ".DS_Store", "Thumbs.db"})
"""Not listed (PROTOCOL.md 4.4)."""
RECENT_BRANCHES: Final = 10
"""PROTOCOL.md 5.1."""


@dataclass(frozen=True, slots=True)
class Found:
    path: str
    """Relative, with slashes."""
    type: Literal["file", "dir"]

    @property
    def depth(self) -> int:
        return self.path.count("/") + 1


@dataclass(frozen=True, slots=True)
class Branch:
    name: str
    is_current: bool
    is_remote: bool


def read_found(data: bytes, limit_bytes: int) -> tuple[tuple[Found, ...], bool]:
    """What `find` said: paths ending in NUL, a folder's twice. And whether it was cut at `limit_bytes`."""
    cut = len(data) >= limit_bytes
    records = data.split(b"\0")[:-1]
    found: list[Found] = []
    at = 0
    while at < len(records):
        folder = at + 1 < len(records) and records[at + 1] == records[at]
        path = records[at].decode("utf-8", "replace").removeprefix("./")
        # The last record of a cut answer may be half of a folder's pair.
        if not (cut and not folder and at + 1 == len(records)):
            found.append(Found(path, "dir" if folder else "file"))
        at += 2 if folder else 1
    return tuple(found), cut


def in_order(found: Iterable[Found]) -> list[Found]:
    """Breadth first; folders before files, then by name without regard to case."""
    return sorted(found, key=lambda one: (one.depth, one.type != "dir", one.path.casefold(), one.path))


def names_of(found: Sequence[Found]) -> tuple[list[str], list[str]]:
    """Folders and files of one folder, to be shown."""
    shown = [one for one in in_order(found) if one.path not in HIDDEN_NAMES]
    return [one.path for one in shown if one.type == "dir"], [one.path for one in shown if one.type == "file"]


def page_of(
    folders: Sequence[str], files: Sequence[str], limit: int | None, offset: int
) -> tuple[list[str], list[str], bool]:
    """A page of both as one list, and whether more follow."""
    end = len(folders) + len(files) if limit is None else offset + limit
    shown_files = files[max(0, offset - len(folders)) : max(0, end - len(folders))]
    return [*folders[offset:end]], [*shown_files], end < len(folders) + len(files)


def matching(found: Iterable[Found], query: str, limit: int) -> list[Found]:
    wanted = query.casefold()
    return [one for one in in_order(found) if wanted in one.path.casefold()][:limit]


def read_branches(data: bytes) -> tuple[Branch, ...]:
    """Lines of `HEAD mark, NUL, full ref name` (newest commit first) as branches."""
    branches = []
    for line in data.split(b"\n"):
        mark, _, raw = line.partition(b"\0")
        ref = raw.decode("utf-8", "replace")
        if ref.startswith("refs/heads/"):
            branches.append(Branch(ref.removeprefix("refs/heads/"), mark == b"*", False))
        elif ref.startswith("refs/remotes/") and not ref.endswith("/HEAD"):
            branches.append(Branch(ref.removeprefix("refs/remotes/"), False, True))
    return tuple(branches)
