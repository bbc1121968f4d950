"""What of a workspace's `.git` the box may not write, because git outside the box would run it.

Hooks and configuration are not enough: `commondir` and `config.worktree` redirect git to others of the attacker's
choice. A path can only be protected when it exists, so what is missing is made first (SANDBOX-NOTES.md section 3).
Nested repositories are not covered here.
"""

from dataclasses import dataclass
from typing import Final

from lodger_sandbox.core.policy import HostFacts, PathKind, PolicyRefused, Profile, Shown, ToCreate


@dataclass(frozen=True, slots=True)
class GuardedEntry:
    name: str
    is_folder: bool
    content: bytes
    """What it holds when it has to be made; chosen so that git behaves as if it were not there."""


GUARDED: Final = (
    GuardedEntry("hooks", True, b""),
    GuardedEntry("config.worktree", False, b""),
    GuardedEntry("commondir", False, b".\n"),
)
CONFIG: Final = GuardedEntry("config", False, b"")


def git_paths(workspace: str) -> tuple[str, ...]:
    """The paths whose kind `guard_git` asks for."""
    git = f"{workspace}/.git"
    return (git, *(f"{git}/{entry.name}" for entry in (*GUARDED, CONFIG)))


def protected_paths(workspace: str) -> tuple[str, ...]:
    """`.git` itself, and what is read-only in it under every profile that guards it."""
    git = f"{workspace}/.git"
    return (git, *(f"{git}/{entry.name}" for entry in GUARDED))


def guard_git(workspace: str, profile: Profile, facts: HostFacts) -> tuple[tuple[Shown, ...], tuple[ToCreate, ...]]:
    """The binds that protect `.git`, and what has to be made for them. Raises: PolicyRefused."""
    git = f"{workspace}/.git"
    match facts.kind(git):
        case PathKind.MISSING | PathKind.OTHER:
            return (), ()
        case PathKind.LINK:
            raise PolicyRefused(f"{git} is a link; a box cannot protect what it points at. Replace it by the folder.")
        case PathKind.FILE:
            return (Shown(git, git, False, "names the repository this work tree belongs to"),), ()
        case PathKind.FOLDER:
            return _guard_folder(git, profile, facts)


def _guard_folder(git: str, profile: Profile, facts: HostFacts) -> tuple[tuple[Shown, ...], tuple[ToCreate, ...]]:
    shown = [Shown(git, git, True, "the repository; bound onto itself so that it cannot be renamed")]
    missing: list[ToCreate] = []
    # In the default profile `git config` and `git remote add` must work, so `config` stays writable there.
    entries = (*GUARDED, CONFIG) if profile is Profile.STRICT else GUARDED
    for entry in entries:
        path = f"{git}/{entry.name}"
        expected = PathKind.FOLDER if entry.is_folder else PathKind.FILE
        kind = facts.kind(path)
        if kind is PathKind.MISSING:
            missing.append(ToCreate(path, entry.is_folder, entry.content))
        elif kind is not expected:
            raise PolicyRefused(f"{path} should be a {expected.value} but is a {kind.value}; a box cannot protect it.")
        shown.append(Shown(path, path, False, "git outside the box would run what stands here"))
    return tuple(shown), tuple(missing)
