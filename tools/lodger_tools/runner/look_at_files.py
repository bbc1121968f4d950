"""What lies at some paths: where their links lead, and a mark by which a later look tells whether it is the same.

The marks bind a person's word to the scripts it was given for (ATTACKS.md A7): the daemon opens no workspace file, so
both looks happen here.
"""

from __future__ import annotations

import os
from stat import S_ISREG

from lodger_tools.runner.file_errors import FileRefused

MARKED_LIMIT_BYTES = 64 * 1024 * 1024
"""The runner does nothing else meanwhile: a few hundred milliseconds."""
ABSENT = "absent"
UNREADABLE = "unreadable"
"""A folder, a pipe, a device, too large, or closed to us."""


def look_at_files(paths: list[str], marks: bool, cwd: str, env: dict[str, str]) -> list[list[str]]:
    """`[path as given, real path, mark]` of each; the mark is empty unless it is wanted. Never raises for a path."""
    return [[path, real_path(path, cwd, env), mark_of(path, cwd, env) if marks else ""] for path in paths]


def refuse_changed(pinned: list[list[str]], cwd: str, env: dict[str, str]) -> None:
    """Raises: FileRefused when a file is not what it was when its mark was made."""
    for path, mark in pinned:
        if mark_of(path, cwd, env) != mark:
            raise FileRefused(
                f"{path} is not what it was when the person allowed this command, so nothing ran. Call it again: the"
                " person is asked about the file as it is now."
            )


def real_path(path: str, cwd: str, env: dict[str, str]) -> str:
    from lodger_tools.runner.operations import full_path

    return os.path.realpath(full_path(path, cwd, env))


def mark_of(path: str, cwd: str, env: dict[str, str]) -> str:
    from hashlib import sha256

    from lodger_tools.runner.operations import full_path

    try:
        # Without O_NONBLOCK a FIFO would stop the runner until somebody writes to it.
        fd = os.open(full_path(path, cwd, env), os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except FileNotFoundError:
        return ABSENT
    except OSError:
        return UNREADABLE
    try:
        status = os.fstat(fd)
        if not S_ISREG(status.st_mode) or status.st_size > MARKED_LIMIT_BYTES:
            return UNREADABLE
        digest, left = sha256(), MARKED_LIMIT_BYTES + 1
        while left > 0 and (data := os.read(fd, min(left, 1024 * 1024))):
            digest.update(data)
            left -= len(data)
        return digest.hexdigest() if left > 0 else UNREADABLE
    except OSError:
        return UNREADABLE
    finally:
        os.close(fd)
