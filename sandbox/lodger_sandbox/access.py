"""Asking the kernel, as the box's user, whether a folder can be worked in."""

import os
import subprocess
from pathlib import Path
from typing import Final

from lodger_sandbox.contract import BoxUser, SandboxUnavailable
from lodger_sandbox.host import base_interpreter
from lodger_sandbox.launcher import NO_ACCESS
from lodger_sandbox.sources import open_without_links
from lodger_sandbox.users import refuse_workspace

LAUNCHER: Final = str(Path(__file__).with_name("launcher.py"))
_ASK_LIMIT_S: Final = 5.0


def workspace_access(user: BoxUser, path: str, *, writable: bool = True) -> None:
    """Whether boxes of this user can work in a folder. Blocks for some 20 ms where the kernel has to be asked as that
    user: where this process is root, and the folder is not theirs.

    `start_detached` asks again in any case; this is for saying so before there is anything to start.

    Raises: WorkspaceRefused with the command that grants it; PolicyRefused for a missing or linked folder.
    """
    mode = os.R_OK | os.X_OK | (os.W_OK if writable else 0)
    descriptor = open_without_links(path)
    try:
        if os.geteuid() == user.uid:
            allowed = os.access(f"/proc/self/fd/{descriptor}", mode)
        else:
            allowed = _owner_may(user, descriptor, mode) or _launcher_allows(user, descriptor, mode)
    finally:
        os.close(descriptor)
    if not allowed:
        raise refuse_workspace(user, path)


def _owner_may(user: BoxUser, descriptor: int, mode: int) -> bool:
    """Whether they certainly may: of an owner nothing counts but the owner's own three bits and how it is mounted."""
    found, owners = os.fstat(descriptor), mode << 6
    if found.st_uid != user.uid or found.st_mode & owners != owners:
        return False
    return not (mode & os.W_OK and os.fstatvfs(descriptor).f_flag & os.ST_RDONLY)


def _launcher_allows(user: BoxUser, descriptor: int, mode: int) -> bool:
    words = (f"user={user.uid}:{user.gid}", f"stage={descriptor}", f"access={mode}:/run/{descriptor}")
    plan_fd = os.memfd_create("lodger-plan", os.MFD_CLOEXEC)
    try:
        os.write(plan_fd, "".join(f"{word}\0" for word in words).encode())
        os.lseek(plan_fd, 0, os.SEEK_SET)
        asked = subprocess.run(
            (base_interpreter().executable, "-I", "-S", "-B", LAUNCHER, str(plan_fd)),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            pass_fds=(plan_fd, descriptor),
            env={},
            cwd="/",
            check=False,
            timeout=_ASK_LIMIT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise SandboxUnavailable(
            f"Whether {user.name} can use the folder was not answered within {_ASK_LIMIT_S:.0f} s; "
            "try again when the machine is less busy."
        ) from error
    finally:
        os.close(plan_fd)
    if asked.returncode not in (0, NO_ACCESS):
        raise SandboxUnavailable(f"The launcher failed: {asked.stderr.decode('utf-8', 'replace').strip()[-500:]}")
    return asked.returncode == 0
