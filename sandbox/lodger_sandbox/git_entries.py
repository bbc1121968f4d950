"""Looking at a workspace's repository from outside a box: as bytes and names only, never through a link.

Nothing here is acted on but "it is another than it was"; what the bytes mean is found out in a box.
"""

import contextlib
import os
import stat
from collections import deque
from dataclasses import dataclass
from typing import Final

from lodger_sandbox.core.policy import PathKind, PolicyRefused
from lodger_sandbox.sources import kind_of, open_without_links

CONFIG_LIMIT_BYTES: Final = 256 * 1024
"""A configuration is some hundred bytes long."""
FOLDER_LIMIT: Final = 500
"""So many folders are looked at for repositories, those nearest to the workspace first: some 2 ms."""
NOT_ENTERED: Final = frozenset((".git", "node_modules", ".venv", "__pycache__"))


@dataclass(frozen=True, slots=True)
class ConfigSeen:
    """`.git/config` at one moment."""

    content: bytes | None
    """None when it is missing or strange."""
    strange: bool = False
    """No plain file, or longer than a configuration is: git might still follow it to somewhere."""


def look_at_config(workspace: str) -> ConfigSeen:
    """Blocking; never raises."""
    path = f"{workspace}/.git/config"
    if kind_of(path) is PathKind.MISSING:
        return ConfigSeen(None)
    try:
        place_fd = open_without_links(path)
    except PolicyRefused:
        return ConfigSeen(None, strange=kind_of(path) is not PathKind.MISSING)
    try:
        if not stat.S_ISREG(os.fstat(place_fd).st_mode):
            return ConfigSeen(None, strange=True)
        with open(f"/proc/self/fd/{place_fd}", "rb") as file:
            content = file.read(CONFIG_LIMIT_BYTES + 1)
    except OSError:
        return ConfigSeen(None, strange=True)
    finally:
        os.close(place_fd)
    return ConfigSeen(content) if len(content) <= CONFIG_LIMIT_BYTES else ConfigSeen(None, strange=True)


@dataclass(frozen=True, slots=True)
class _Folder:
    changed_ns: int
    inode: int
    below: tuple[str, ...]
    has_repository: bool


class NestedRepositories:
    """Folders below a workspace that hold a `.git`. A second look costs one lstat for each folder that is as it was."""

    def __init__(self, workspace: str) -> None:
        self._workspace = workspace
        self._known: dict[str, _Folder] = {}

    def look(self) -> frozenset[str]:
        """Their paths below the workspace, as far as the nearest folders go. Blocking; never raises."""
        seen: dict[str, _Folder] = {}
        waiting = deque([""])
        while waiting and len(seen) < FOLDER_LIMIT:
            below = waiting.popleft()
            with contextlib.suppress(OSError):
                folder = seen[below] = self._folder(below)
                waiting.extend(f"{below}/{name}" for name in folder.below)
        self._known = seen
        return frozenset(below.removeprefix("/") for below, folder in seen.items() if below and folder.has_repository)

    def _folder(self, below: str) -> _Folder:
        """Raises: OSError."""
        path = f"{self._workspace}{below}"
        found = os.lstat(path)
        if not stat.S_ISDIR(found.st_mode):
            raise NotADirectoryError(path)
        known = self._known.get(below)
        # The time of the last change of the entry itself: nobody can set it back.
        if known is not None and (known.changed_ns, known.inode) == (found.st_ctime_ns, found.st_ino):
            return known
        names: list[str] = []
        has_repository = False
        with os.scandir(path) as entries:
            for entry in entries:
                has_repository |= entry.name == ".git"
                if entry.name not in NOT_ENTERED and entry.is_dir(follow_symlinks=False):
                    names.append(entry.name)
        return _Folder(found.st_ctime_ns, found.st_ino, tuple(sorted(names)), has_repository)
