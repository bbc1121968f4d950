"""What this machine offers: bubblewrap, the interpreter, and what stands at the paths a policy asks about."""

import os
import platform
import stat
import subprocess
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from lodger_sandbox.contract import SandboxUnavailable
from lodger_sandbox.core.policy import HostFacts, Interpreter
from lodger_sandbox.core.syscall_tables import Architecture
from lodger_sandbox.sources import kind_of

BWRAP_PATHS: Final = ("/usr/bin/bwrap", "/bin/bwrap", "/usr/local/bin/bwrap", "/run/current-system/sw/bin/bwrap")
"""Never PATH: a workspace could put its own bwrap there (ATTACKS.md F10)."""

_HELP_LIMIT_S: Final = 5.0


def find_bwrap(candidates: Sequence[str] = BWRAP_PATHS) -> str:
    """The bubblewrap to use: the first that is root's and that nobody else may write.

    Raises: SandboxUnavailable, saying what to install.
    """
    unfit: list[str] = []
    for path in candidates:
        try:
            found = Path(path).stat()
        except OSError:
            continue
        if stat.S_ISREG(found.st_mode) and found.st_uid == 0 and not found.st_mode & 0o022 and found.st_mode & 0o111:
            return path
        unfit.append(path)
    if unfit:
        raise SandboxUnavailable(
            f"{unfit[0]} is not safe to use: it must belong to root and be writable by no one else."
        )
    raise SandboxUnavailable(
        "bubblewrap is not installed, so no tool can run. Install it: apt-get install bubblewrap, "
        "dnf install bubblewrap, pacman -S bubblewrap or apk add bubblewrap."
    )


@cache
def binds_descriptors(bwrap: str) -> bool:
    """Whether this bwrap has --bind-fd, which also checks that the mount is what was opened."""
    return b"--bind-fd" in _ask(bwrap, "--help")


@cache
def bwrap_version(bwrap: str) -> str:
    return _ask(bwrap, "--version").decode("ascii", "replace").strip().removeprefix("bubblewrap ")


def _ask(bwrap: str, option: str) -> bytes:
    try:
        return subprocess.run([bwrap, option], capture_output=True, check=False, timeout=_HELP_LIMIT_S, env={}).stdout
    except subprocess.TimeoutExpired as error:
        raise SandboxUnavailable(
            f"{bwrap} {option} did not answer within {_HELP_LIMIT_S:.0f} s; try again when the machine is less busy."
        ) from error


def this_architecture() -> Architecture:
    """Raises: SandboxUnavailable."""
    try:
        return Architecture(platform.machine())
    except ValueError as error:
        raise SandboxUnavailable(f"There is no system call filter for {platform.machine()} machines yet.") from error


@cache
def base_interpreter() -> Interpreter:
    """The interpreter below any virtual environment: the box sees its folder only, not the environment's."""
    prefix = os.path.realpath(sys.base_prefix)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    executable = os.path.realpath(f"{prefix}/bin/python{version}")
    if not os.path.commonpath((prefix, executable)) == prefix or not os.access(executable, os.X_OK):
        raise SandboxUnavailable(f"No python{version} was found in {prefix}/bin to run inside a box.")
    return Interpreter(prefix, executable, _open_to_all(prefix))


def _open_to_all(path: str) -> bool:
    return all(folder.stat().st_mode & 0o005 == 0o005 for folder in (Path(path), *Path(path).parents))


def look_at(paths: Iterable[str]) -> HostFacts:
    return HostFacts({path: kind_of(path) for path in paths}, base_interpreter())
