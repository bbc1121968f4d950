"""Looking into a folder through a read-only box on it; nothing of a workspace is opened outside one."""

from typing import Final

from lodger_daemon.randomness import Rng
from lodger_tools.box.contract import (
    BoxCall,
    Boxes,
    BoxKey,
    BoxLost,
    BoxOutcome,
    BoxProfile,
    BoxUnavailable,
    RunProgram,
)

PERSON: Final = "person"
"""Stands in a box key where an agent's id does: no agent's memory is in such a box."""

LISTING_LIMIT_BYTES: Final = 8 * 1024 * 1024
"""Some 100,000 paths; twice what a search may visit (PROTOCOL.md 4.4)."""
BRANCHES_LIMIT_BYTES: Final = 1024 * 1024
LOOK_LIMIT_S: Final = 20.0
READ_LIMIT_S: Final = 60.0

_SKIPPED: Final = (
    ".git", ".hg", ".svn", ".letta", ".venv", "venv", "node_modules", "__pycache__", ".mypy_cache", ".pytest_cache",
    ".ruff_cache", ".tox", ".next", ".cache", "dist", "build", "target",
)  # fmt: skip
"""Folders of version control and of what is built: neither searched nor shown in a tree."""

# A folder's path is said twice in a row, which every `find` can do; `-printf` with the type is GNU's only.
_SAY: Final = "-type d -print0 -print0 -o -print0"
_PRUNE: Final = "-type d \\( " + " -o ".join(f"-name {name}" for name in _SKIPPED) + " \\) -prune -o"
_FIND: Final = (
    'cd -- "$1" 2>/dev/null || exit 3\nfind . -mindepth 1 -maxdepth "$2" {prune} {say} 2>/dev/null | head -c "$3"\n'
)
_FIND_ALL: Final = _FIND.format(prune="", say=_SAY)
_FIND_OWN: Final = _FIND.format(prune=_PRUNE, say=_SAY)
_READ: Final = '[ -e "$1" ] || exit 3\n[ -f "$1" ] || exit 4\n[ -r "$1" ] || exit 5\nexec head -c "$2" -- "$1"\n'
_BRANCHES: Final = (
    'cd -- "$1" 2>/dev/null || exit 3\ngit rev-parse --git-dir >/dev/null 2>&1 || exit 4\n'
    "git for-each-ref --sort=-committerdate --format='%(HEAD)%00%(refname)' refs/heads refs/remotes | head -c \"$2\"\n"
)
_CURRENT: Final = (
    'cd -- "$1" 2>/dev/null || exit 3\ngit rev-parse --git-dir >/dev/null 2>&1 || exit 4\n'
    "git symbolic-ref -q --short HEAD\nexit 0\n"
)


class NotThere(Exception):
    """The file or folder is not there or not of the kind that was meant; the text is for the person."""


class Missing(Exception):
    """No box can be had to look with; the text is for the person."""


class FolderBoxes:
    """Raises, from every method: NotThere, Missing."""

    def __init__(self, boxes: Boxes, rng: Rng) -> None:
        self._boxes = boxes
        self._rng = rng

    async def found(self, root: str, folder: str, depth: int, *, everything: bool) -> tuple[bytes, int]:
        """What lies in `folder`, in the words of `read_found`, and where that was cut.

        Args:
            everything: also what version control and builds keep there.
        """
        script = _FIND_ALL if everything else _FIND_OWN
        outcome = await self._run(root, script, (folder, str(depth), str(LISTING_LIMIT_BYTES)), LOOK_LIMIT_S)
        if outcome.exit_code != 0:
            raise NotThere(f"There is no folder {folder} that can be read")
        return outcome.data, LISTING_LIMIT_BYTES

    async def content(self, root: str, path: str, limit_bytes: int) -> bytes:
        outcome = await self._run(root, _READ, (path, str(limit_bytes + 1)), READ_LIMIT_S, limit_bytes + 4096)
        match outcome.exit_code:
            case 0 if len(outcome.data) <= limit_bytes:
                return outcome.data
            case 0:
                raise NotThere(f"{path} is larger than {limit_bytes // 1024**2} MiB")
            case 3:
                raise NotThere(f"There is no file {path}")
            case 4:
                raise NotThere(f"{path} is no file")
            case _:
                raise NotThere(f"{path} may not be read in a box")

    async def branches(self, root: str, folder: str) -> bytes:
        """In the words of `read_branches`; newest commit first."""
        outcome = await self._run(root, _BRANCHES, (folder, str(BRANCHES_LIMIT_BYTES)), LOOK_LIMIT_S)
        if outcome.exit_code != 0:
            raise NotThere(f"{folder} is in no git repository")
        return outcome.data

    async def current_branch(self, root: str, folder: str) -> str | None:
        """None where no branch is checked out."""
        outcome = await self._run(root, _CURRENT, (folder,), LOOK_LIMIT_S, 4096)
        if outcome.exit_code != 0:
            raise NotThere(f"{folder} is in no git repository")
        return outcome.data.decode("utf-8", "replace").strip() or None

    async def _run(
        self, root: str, script: str, arguments: tuple[str, ...], limit_s: float, limit_bytes: int = 9 * 1024 * 1024
    ) -> BoxOutcome:
        key = BoxKey(PERSON, root, BoxProfile.READ_ONLY)
        program = RunProgram(("/bin/sh", "-c", script, "sh", *arguments), b"", limit_s, limit_bytes)
        try:
            outcome = await self._boxes.run(key, BoxCall(f"look/{self._rng.uuid()}", program, cwd="/"))
        except (BoxUnavailable, BoxLost) as error:
            raise Missing(f"{root} cannot be looked into: {error}") from error
        if outcome.timed_out:
            raise Missing(f"Looking into {root} took longer than {limit_s:g} s")
        return outcome
