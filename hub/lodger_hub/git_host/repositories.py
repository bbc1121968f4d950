"""The hub's repositories on disk: one bare repository per agent and per shared memory, owned by the hub alone."""

import os
import re
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lodger_hub.git_host.seams import Seam, no_seam
from lodger_protocol.shared_names import shared_name_fault

_AGENT_ID: Final = re.compile(r"agent-[A-Za-z0-9-]{1,120}")
_OID: Final = re.compile(r"[0-9a-f]{40}")
_GIT_PLACES: Final = ("/usr/bin/git", "/usr/local/bin/git", "/opt/homebrew/bin/git")

MAX_PUSH_BYTES: Final = 96 * 1024 * 1024
"""What one push may hold, in a pack's compressed bytes: an ordinary push has a few kilobytes, the first push of a
large memory some tens of megabytes."""

MAX_REPOSITORIES: Final = 1000
"""Each costs some 30 files even when empty, and any machine may name agents."""

SHARED_FOLDER: Final = "shared"
"""Beside the agents' folders: no agent id."""

MAKING: Final = "making-"
"""How the name of one begins that is not whole yet, beside the place where it is to be."""

_CONFIGURATION: Final[Mapping[str, str]] = {
    "core.hooksPath": "/dev/null",
    "core.fsync": "all",
    "core.bigFileThreshold": "1m",
    "gc.auto": "0",
    "http.receivepack": "true",
    "http.getanyfile": "false",
    "receive.fsckObjects": "true",
    "receive.maxInputSize": str(MAX_PUSH_BYTES),
    "receive.denyNonFastForwards": "true",
    "receive.denyDeletes": "true",
    "receive.autogc": "false",
    "receive.unpackLimit": "100",
    "transfer.hideRefs": "refs/lodger",
}


class GitMissing(Exception):
    """No git in any trusted place. Install git."""


class TooManyRepositories(Exception):
    """The hub holds as many memories as it may."""


def find_git() -> str:
    """Git from a fixed trusted place, never from the search path.

    Raises: GitMissing.
    """
    for place in _GIT_PLACES:
        if os.access(place, os.X_OK):
            return place
    raise GitMissing(f"git is in none of {', '.join(_GIT_PLACES)}; install git")


def git_environment() -> dict[str, str]:
    """All that a git of the hub sees: nothing is inherited."""
    return {
        "PATH": "/usr/bin:/bin:/usr/local/bin:/opt/homebrew/bin",
        "HOME": "/nonexistent",
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "/bin/false",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
    }


@dataclass(frozen=True, slots=True)
class Place:
    """Which repository: its folder below the root, as `git http-backend` is told it. Made by the two below only."""

    path: str


def own_memory(agent_id: str) -> Place:
    """An agent's own. Raises: ValueError when the id is not well-formed."""
    if _AGENT_ID.fullmatch(agent_id) is None:
        raise ValueError(f"{agent_id[:60]!r} is no agent id")
    return Place(f"{agent_id}/state.git")


def shared_memory(name: str) -> Place:
    """One that agents share. Raises: ValueError when the name is not well-formed."""
    if fault := shared_name_fault(name):
        raise ValueError(fault)
    return Place(f"{SHARED_FOLDER}/{name}/state.git")


@dataclass(frozen=True, slots=True)
class Repositories:
    """All repositories below one folder. Every method may block on the disk."""

    root: Path
    seam: Seam = no_seam

    def path(self, agent_id: str) -> Path:
        """An agent's own. Raises: ValueError when the id is not well-formed."""
        return self.folder(own_memory(agent_id))

    def folder(self, place: Place) -> Path:
        return self.root / place.path

    def ensure(self, wanted: Place) -> Path:
        """The repository, made empty if there is none. A half-made one from a crash is replaced.

        Raises: TooManyRepositories, GitMissing, OSError.
        """
        place = self.folder(wanted)
        if place.exists():
            return place
        self.check_room()
        self.seam("before making a repository")
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = place.parent / f"{MAKING}{os.getpid()}-{time.monotonic_ns()}.git"
        environment = git_environment()
        argv = [find_git(), "init", "-q", "--bare", "--template=", "--initial-branch=main", str(fresh)]
        subprocess.run(argv, env=environment, check=True, timeout=30, stdout=subprocess.DEVNULL)
        lines = [f"[{key.split('.')[0]}]\n\t{key.split('.')[1]} = {value}\n" for key, value in _CONFIGURATION.items()]
        with (fresh / "config").open("a", encoding="utf-8") as config:
            config.writelines(lines)
        (fresh / "created").write_text(str(time.time_ns()), encoding="ascii")
        self.seam("before naming a repository")
        try:
            fresh.rename(place)
        except OSError:
            # Another request made it first: both are empty, the first one stands.
            if not place.exists():
                raise
        self.seam("after naming a repository")
        return place

    def head(self, place: Place) -> str | None:
        """The commit `main` points at, or None for an empty or unknown repository."""
        return _read_main(self.folder(place))

    def check_room(self) -> None:
        """Raises: TooManyRepositories when there is none for one more."""
        own = [place for place in _inside(self.root) if _AGENT_ID.fullmatch(place.name)]
        if len(own) + len(_inside(self.root / SHARED_FOLDER)) >= MAX_REPOSITORIES:
            raise TooManyRepositories(f"this hub holds {MAX_REPOSITORIES} memories, which is all it takes")

    def list_agents(self) -> tuple[str, ...]:
        """Agents whose memory has at least one commit, oldest first."""
        if not self.root.is_dir():
            return ()
        found = [(_created_ns(place / "state.git"), place.name) for place in self.root.iterdir()
                 if _AGENT_ID.fullmatch(place.name) and _read_main(place / "state.git")]  # fmt: skip
        return tuple(name for _, name in sorted(found))


def _inside(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _created_ns(repository: Path) -> int:
    try:
        return int((repository / "created").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0


def _read_main(repository: Path) -> str | None:
    try:
        text = (repository / "refs" / "heads" / "main").read_text(encoding="ascii").strip()
        return text if _OID.fullmatch(text) else None
    except FileNotFoundError:
        pass
    try:
        packed = (repository / "packed-refs").read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    return next((line[:40] for line in packed.splitlines() if line[40:] == " refs/heads/main"), None)
