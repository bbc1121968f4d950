"""Who the person is to git and how they like it; nothing of their configuration is run. Blocks for some 5 ms."""

import logging
import subprocess
from pathlib import Path
from typing import Final

from lodger_daemon.memory.errors import MemoryUnavailable
from lodger_daemon.memory.git import find_git
from lodger_daemon.service.core.box_git import PersonsGit, persons_git_in

_FILES: Final = (".config/git/config", ".gitconfig")
"""As git reads them: the later one wins."""
_FILE_LIMIT_BYTES: Final = 1024 * 1024
_RUN_LIMIT_S: Final = 2.0
"""An included file may lie on a network disk that hangs."""
_log = logging.getLogger(__name__)


def persons_git(home: Path) -> PersonsGit:
    """Nothing when they set nothing, or git could not say. Included files count, as for the person's own git;
    `includeIf` does not, because it asks about a repository, and git must not look at one that an agent writes."""
    try:
        git = find_git()
        return persons_git_in(tuple(_listed(git, home / name, home) for name in _FILES if _is_readable(home / name)))
    except (MemoryUnavailable, OSError, subprocess.SubprocessError) as error:
        _log.warning("who you are to git could not be read, so boxes do not know: %s", error)
        return PersonsGit()


def _is_readable(file: Path) -> bool:
    return file.is_file() and file.stat().st_size <= _FILE_LIMIT_BYTES


def _listed(git: str, file: Path, home: Path) -> bytes:
    """Empty when git cannot read it, or when an included file, which an agent may write, makes it too long."""
    listing = subprocess.run(
        (git, "config", "--file", str(file), "--includes", "-z", "--list"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        # The home only tells where `~` in an included path leads.
        env={"HOME": str(home), "LC_ALL": "C", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"},
        cwd="/",
        timeout=_RUN_LIMIT_S,
        check=False,
    ).stdout
    return listing if len(listing) <= _FILE_LIMIT_BYTES else b""
