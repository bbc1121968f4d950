"""Which mounts a running box has.

A mount vanishes from every box when someone outside replaces what it covers, as `git config` and editors do by renaming
(SANDBOX-NOTES.md section 3): then the box can write what was protected.
"""

import re
from collections.abc import Set
from typing import Final

from lodger_sandbox.core.git_guard import protected_paths

_ESCAPE: Final = re.compile(r"\\([0-7]{3})")


def mount_points(pid: int) -> frozenset[str] | None:
    """As the process sees them; None when it is gone. Some 0.1 ms."""
    try:
        with open(f"/proc/{pid}/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            places = [line.split(" ", 5)[4] for line in file]
    except (OSError, IndexError):
        return None
    return frozenset(_unescaped(place) if "\\" in place else place for place in places)


def _unescaped(place: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), place)


def lost_mounts(workspace: str, had: Set[str], has: Set[str]) -> tuple[str, ...]:
    """What was covered and is not any more, or should be together with the rest of a guarded `.git`."""
    git, *inside = protected_paths(workspace)
    guarded = inside if git in had and had & {*inside} else []
    return tuple(sorted({*had, *guarded} - has))
