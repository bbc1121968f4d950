"""Keeping a published repository small and quick: loose objects become packs. No object is ever thrown away here.

Git's own housekeeping is off: it would start by itself, outlive the command that started it, and know nothing of our
lock. Blocking; call under the agent's lock. After a crash every object is where it was, or in a pack as well.
"""

import contextlib
import shutil
from pathlib import Path
from typing import Final

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


def drop_left_over(published: Published, now_s: float) -> None:
    """Take away what gits have left half-written, which no object is in; `now_s` is wall time. Starts no process."""
    objects = published.repository / "objects"
    for path in (*objects.glob("tmp_*"), *objects.glob("pack/tmp_*")):
        with contextlib.suppress(OSError):
            if now_s - path.lstat().st_mtime > _LEFT_OVER_S:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _entries(folder: Path, ending: str = "") -> int:
    try:
        return sum(path.name.endswith(ending) for path in folder.iterdir())
    except FileNotFoundError:
        return 0
