"""Shared memories that were deleted: kept whole for a time, beside the others, so that a mistake can be undone.

Deleting and bringing back are one rename each: after a crash a memory is in one of both places. Blocking.
"""

import contextlib
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lodger_hub.durable_files import sync_folder
from lodger_hub.git_host.seams import Seam

KEPT_DAYS: Final = 30
_DAY_S: Final = 24 * 3600
_FOLDER: Final = "deleted"
"""Beside the agents' folders: no agent id."""
_NAME: Final = re.compile(r"([0-9]{1,19})-(.+)")
"""When, in nanoseconds since 1970, and what."""
_REMOVING: Final = "removing-"


@dataclass(frozen=True, slots=True)
class Deleted:
    """All that was deleted below one root."""

    root: Path
    seam: Seam

    def put(self, memory: Path, now_ns: int) -> None:
        """Move a memory's folder here. Durable when it returns. Raises: OSError."""
        (self.root / _FOLDER).mkdir(mode=0o700, exist_ok=True)
        self._move(memory, self.root / _FOLDER / f"{now_ns}-{memory.name}")

    def bring_back(self, memory: Path) -> bool:
        """Move what was deleted last under this name back, to where nothing may be. False when there is none. Raises:
        OSError."""
        found = [(at_ns, place) for at_ns, name, place in self._all() if name == memory.name]
        if not found:
            return False
        self._move(max(found)[1], memory)
        return True

    def drop_old(self, now_ns: int) -> None:
        """Let go of what has been here for its time. What cannot be removed is tried again with the next."""
        for at_ns, _, place in self._all():
            if now_ns - at_ns > KEPT_DAYS * _DAY_S * 10**9:
                # Under a name that never comes back: a crash may leave half of it.
                with contextlib.suppress(OSError):
                    place.rename(place.with_name(f"{_REMOVING}{place.name}"))
        for place in (self.root / _FOLDER).glob(f"{_REMOVING}*"):
            shutil.rmtree(place, ignore_errors=True)

    def _all(self) -> list[tuple[int, str, Path]]:
        folder = self.root / _FOLDER
        places = list(folder.iterdir()) if folder.is_dir() else []
        return [(int(found[1]), found[2], place) for place in places if (found := _NAME.fullmatch(place.name))]

    def _move(self, old: Path, new: Path) -> None:
        self.seam("before moving a deleted memory")
        old.rename(new)
        self.seam("after moving a deleted memory")
        for folder in (new.parent, old.parent):
            sync_folder(folder)
