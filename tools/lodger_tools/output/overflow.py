"""Whole texts of truncated results: written by the daemon after redaction, seen read-only in the box."""

import contextlib
import os
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lodger_sandbox.contract import Mount

TARGET: Final = "/run/lodger/overflow"
"""Where a box sees its agent's folder."""
AGE_LIMIT_S: Final = 24 * 3600.0
FILE_LIMIT_BYTES: Final = 20 * 1024 * 1024
FOLDER_LIMIT_BYTES: Final = 256 * 1024 * 1024
FOLDER_LIMIT_FILES: Final = 2000
SAFE_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")


@dataclass(frozen=True, slots=True)
class OverflowOwner:
    """The box's user, when the daemon is root: the files are 0600, so they must be that user's."""

    uid: int
    gid: int


class OverflowFolder:
    """The overflow files of all agents. Every method blocks for a moment; call it in a thread."""

    def __init__(self, root: Path, owner: OverflowOwner | None = None, wall: Callable[[], float] = time.time) -> None:
        """
        Args:
            root: `Paths.overflow`.
        """
        self._root = root
        self._owner = owner
        self._wall = wall

    def mount(self, agent_id: str) -> Mount:
        """What a box of this agent needs in its request. Makes the folder, so that it can be bound."""
        return Mount(source=str(self._folder(agent_id)), target=TARGET)

    def write(self, agent_id: str, tool_name: str, text: str) -> str | None:
        """Store a text; returns its path as the box sees it, or None when it cannot be stored (a full disk must not
        lose the result itself)."""
        tool = tool_name.lower() if SAFE_NAME.fullmatch(tool_name) else "tool"
        name = f"{tool}-{secrets.token_hex(8)}.txt"
        data = text.encode("utf-8", "replace")[:FILE_LIMIT_BYTES]
        try:
            folder = self._folder(agent_id)
            self._make_room(folder, len(data))
            self._write_file(folder / name, data)
        except OSError:
            return None
        return f"{TARGET}/{name}"

    def clean(self) -> int:
        """Remove what is older than 24 h, of every agent; returns how many files."""
        removed = 0
        with contextlib.suppress(OSError):
            for folder in self._root.iterdir():
                for path, status in files_of(folder):
                    if self._wall() - status.st_mtime > AGE_LIMIT_S:
                        path.unlink(missing_ok=True)
                        removed += 1
        return removed

    def _folder(self, agent_id: str) -> Path:
        if not SAFE_NAME.fullmatch(agent_id) or agent_id in (".", ".."):
            raise ValueError(f"not an agent's id: {agent_id!r}")
        folder = self._root / agent_id
        if not folder.is_dir():
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            if self._owner is not None:
                os.chown(folder, self._owner.uid, self._owner.gid)
        return folder

    def _make_room(self, folder: Path, size_bytes: int) -> None:
        """Oldest first, until the new file fits into the folder's limits."""
        files = sorted(files_of(folder), key=lambda item: item[1].st_mtime)
        total = sum(status.st_size for _, status in files) + size_bytes
        count = len(files) + 1
        for path, status in files:
            old = self._wall() - status.st_mtime > AGE_LIMIT_S
            if not old and total <= FOLDER_LIMIT_BYTES and count <= FOLDER_LIMIT_FILES:
                return
            path.unlink(missing_ok=True)
            total -= status.st_size
            count -= 1

    def _write_file(self, path: Path, data: bytes) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                if self._owner is not None:
                    os.fchown(file.fileno(), self._owner.uid, self._owner.gid)
        except OSError:
            path.unlink(missing_ok=True)
            raise


def files_of(folder: Path) -> list[tuple[Path, os.stat_result]]:
    found = []
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append((path, path.lstat()))
    return found
