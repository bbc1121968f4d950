"""Keeping a published repository small and quick: loose objects become packs, and what no ref leads to goes.

Git's own housekeeping is off: it would start by itself, outlive the command that started it, and know nothing of our
lock. Blocking; call under the agent's lock, and while nothing is fetched: a fetch names what it brought only at its
end. After a crash every object that a ref leads to is where it was, or in a pack as well.
"""

import contextlib
import os
import shutil
from pathlib import Path
from typing import Final

from lodger_daemon.durable_files import sync_folder
from lodger_daemon.memory.published import Published

_SAMPLE: Final = ("00", "40", "80", "c0")
"""Ids are spread evenly over 256 folders; counting four of them takes a tenth of a millisecond."""
_LOOSE_IN_SAMPLE: Final = 16
"""About a thousand loose objects, which some two hundred commits make."""
_MOST_PACKS: Final = 40
_LEFT_OVER_S: Final = 24 * 3600.0
"""No fetch lives that long: what a git that was killed, or that refused a pack, has left half-written."""
_LIMIT_S: Final = 8.0
"""Below the time that others wait for the lock. A thousand objects take a fraction of a second."""
_SWEPT: Final = "swept"
"""A file whose time says when this was last done. Without it, whatever can go does, however little it is."""
_SWEEP_AGAIN_S: Final = 24 * 3600.0
_WORTH_BYTES: Final = 4 * 1024 * 1024
"""Commits that were put on top of others leave themselves as they were before: some kilobytes each."""
_PACK_FRAME_BYTES: Final = 32
"""Of a pack, what belongs to no object."""


def needs_packing(published: Published) -> bool:
    """Whether there is enough to pack. Starts no process."""
    objects = published.repository / "objects"
    loose = sum(_entries(objects / name) for name in _SAMPLE)
    return loose >= _LOOSE_IN_SAMPLE or _entries(objects / "pack", ".pack") > _MOST_PACKS


def pack_if_needed(published: Published) -> bool:
    """Put loose objects and small packs together. False when it was needed and could not be done, which harms nobody:
    such as for a full disk, or when it took too long."""
    if not needs_packing(published):
        return True
    published.seam("before packing objects")
    # Each pack at least twice as large as the next: what is packed once is seldom packed again.
    done = published.git.attempt("repack", "-d", "-l", "-q", "--geometric=2", limit_s=_LIMIT_S)
    published.seam("after packing objects")
    return done.exit_code == 0 and not needs_packing(published)


def sweep_if_due(published: Published, now_s: float) -> bool:
    """Take away the objects that no ref leads to, where they take much room, at most once a day. As `pack_if_needed`;
    `now_s` is wall time."""
    stamp = published.folder / _SWEPT
    swept_s = _changed_s(stamp)
    if swept_s is not None and abs(now_s - swept_s) < _SWEEP_AGAIN_S:
        return True
    if _unneeded_bytes(published) > (0 if swept_s is None else _WORTH_BYTES) and not _sweep(published):
        return False
    stamp.touch(mode=0o600)
    os.utime(stamp, (now_s, now_s))
    return True


def sweep_at_next(published: Published) -> None:
    """Somebody wants what was let go of to be gone."""
    (published.folder / _SWEPT).unlink(missing_ok=True)
    sync_folder(published.folder)


def _sweep(published: Published) -> bool:
    published.seam("before dropping what nothing needs")
    # Git puts the new pack in place before it removes those that it replaces.
    for argv in (("repack", "-a", "-d", "-l", "-q"), ("prune", "--expire=now")):
        if published.git.attempt(*argv, limit_s=_LIMIT_S).exit_code != 0:
            return False
        published.seam("after a step of dropping")
    # The gits that stay hold what was removed open.
    published.close()
    return True


def _unneeded_bytes(published: Published) -> int:
    """What lies there beyond the objects that refs lead to, twice stored ones included. Raises: GitFailed."""
    needed = int(published.git.line("rev-list", "--disk-usage", "--objects", "--all"))
    objects = published.repository / "objects"
    loose = sum(_size_bytes(path) for path in objects.glob("[0-9a-f][0-9a-f]/*"))
    packs = sum(_size_bytes(path) - _PACK_FRAME_BYTES for path in objects.glob("pack/pack-*.pack"))
    return max(0, loose + packs - needed)


def drop_left_over(published: Published, now_s: float) -> None:
    """Take away what gits have left half-written, which no object is in; `now_s` is wall time. Starts no process."""
    objects = published.repository / "objects"
    for path in (*objects.glob("tmp_*"), *objects.glob("pack/tmp_*"), *objects.glob("pack/.tmp-*")):
        with contextlib.suppress(OSError):
            if now_s - path.lstat().st_mtime > _LEFT_OVER_S:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _entries(folder: Path, ending: str = "") -> int:
    try:
        return sum(path.name.endswith(ending) for path in folder.iterdir())
    except FileNotFoundError:
        return 0


def _size_bytes(path: Path) -> int:
    try:
        return path.lstat().st_size
    except FileNotFoundError:
        return 0


def _changed_s(file: Path) -> float | None:
    try:
        return file.lstat().st_mtime
    except FileNotFoundError:
        return None
