"""Does a call stay inside its box, and if not, which folder would have to be opened for it?

Leaving the box never widens the box that is there: an approved call runs in another box whose workspace is the one
folder that was asked for (ATTACKS.md F6).
"""

import posixpath
from dataclasses import dataclass
from typing import Final

from lodger_tools.permissions.core.command_calls import as_command
from lodger_tools.permissions.core.rules import COMMAND_TOOL, FILE_TOOLS
from lodger_tools.permissions.core.verdicts import CallToJudge

FOLDER_ARGUMENT: Final = "folder"
"""Bash: an absolute folder outside the workspace that the command has to work in."""
_ALWAYS_SHOWN: Final = ("/usr", "/etc", "/opt", "/bin", "/lib", "/lib64", "/sbin", "/proc", "/sys", "/dev")
"""Parts of the system that every box shows read-only."""
_PRIVATE_SCRATCH: Final = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - these are the box's own, private ones


@dataclass(frozen=True, slots=True)
class Reach:
    """`folder` is the workspace a box needs for this call; the call's own workspace when it stays inside."""

    inside: bool
    folder: str
    read_only: bool = False
    reason: str = ""


def contains(folder: str, path: str) -> bool:
    """Whether a normalised absolute path lies in a folder, by components."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def reach_of(call: CallToJudge, home: str) -> Reach:
    """Where this call wants to go. Lexical: links are the kernel's business."""
    call = as_command(call)
    stays = Reach(inside=True, folder=call.workspace)
    if call.tool_name == COMMAND_TOOL:
        wanted = call.arguments.get(FOLDER_ARGUMENT)
        if not isinstance(wanted, str) or not wanted:
            return stays
        folder = posixpath.normpath(posixpath.join(call.cwd, wanted))
        if contains(call.workspace, folder):
            return stays
        return Reach(
            inside=False, folder=folder, reason=f"the command wants to work in {folder}, outside its workspace"
        )
    if call.tool_name not in FILE_TOOLS:
        return stays
    path = path_of(call, home)
    if any(contains(folder, path) for folder in own_folders(call)):
        return stays
    writes = call.tool_name in {"Write", "Edit"}
    if not writes and (any(contains(folder, path) for folder in _ALWAYS_SHOWN) or contains("/run/lodger", path)):
        return stays
    folder = path if call.tool_name in {"Glob", "Grep"} else posixpath.dirname(path)
    verb = "write" if writes else "read"
    return Reach(
        inside=False, folder=folder, read_only=not writes, reason=f"it would {verb} {path}, outside its workspace"
    )


def own_folders(call: CallToJudge) -> tuple[str, ...]:
    """What the call's box may write: the workspace, its private scratch folders, the agent's own memory."""
    own = (call.workspace, *_PRIVATE_SCRATCH)
    return (*own, call.memory_directory) if call.memory_directory else own


def path_of(call: CallToJudge, home: str) -> str:
    """The absolute path a file tool names, normalised without looking at the disk."""
    value = call.arguments.get(FILE_TOOLS[call.tool_name])
    path = value if isinstance(value, str) else ""
    if path.startswith("~/"):
        path = posixpath.join(home, path[2:])
    return posixpath.normpath(posixpath.join(call.cwd, path))
