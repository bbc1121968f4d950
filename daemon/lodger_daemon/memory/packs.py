"""What is to go into a box, in packs that a box takes: a large memory goes in piece by piece, and is never held whole.
Blocking; call under the lock."""

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from lodger_daemon.memory.errors import TooLargeForABox
from lodger_daemon.memory.published import Published
from lodger_tools.runner.wire import TO_RUNNER_PAYLOAD_LIMIT_BYTES

PART_BYTES: Final = 16 * 1024 * 1024
"""A sixth of what a runner takes at once; some copies of a part are held for a moment."""

BOX_TAKES_BYTES: Final = TO_RUNNER_PAYLOAD_LIMIT_BYTES
Part: TypeAlias = tuple[str, ...]
"""Ids of objects."""


def whole_pack(published: Published, include: Sequence[str], exclude: Sequence[str]) -> bytes | None:
    """All that `include` brings beyond `exclude`; None when that is too much for one pack."""
    return published.pack_of(include, exclude, PART_BYTES)


def parts_of(published: Published, include: Sequence[str], exclude: Sequence[str]) -> tuple[Part, ...]:
    """The same objects in parts; only a single object can make a pack that is too large. Raises: GitFailed."""
    wanted = "".join(f"{oid}\n" for oid in (*include, *(f"^{oid}" for oid in exclude))).encode()
    listed = published.git.run("rev-list", "--objects", "--no-object-names", "--stdin", stdin=wanted)
    sizes = published.git.run("cat-file", "--batch-check=%(objectname) %(objectsize)", stdin=listed)
    return tuple(_filled(sizes.decode("ascii").splitlines()))


def part_pack(published: Published, part: Part) -> bytes:
    """Raises: TooLargeForABox, GitFailed."""
    listed = "".join(f"{oid}\n" for oid in part).encode()
    argv = ("pack-objects", "--stdout", "-q", "--window=0", "--threads=1")
    if len(part) > 1:
        return published.git.run(*argv, stdin=listed)
    # By itself it may have any size, up to that of a fetch, and is not to be held whole then.
    pack = published.git.run_within(BOX_TAKES_BYTES, *argv, stdin=listed)
    if pack is None:
        raise TooLargeForABox(part[0], BOX_TAKES_BYTES)
    return pack


def _filled(lines: Sequence[str]) -> Iterator[Part]:
    """By what the objects hold: more than any pack of them takes."""
    part: list[str] = []
    room_bytes = PART_BYTES
    for line in lines:
        oid, _, size = line.partition(" ")
        if part and int(size) > room_bytes:
            yield tuple(part)
            part, room_bytes = [], PART_BYTES
        part.append(oid)
        room_bytes -= int(size)
    if part:
        yield tuple(part)
