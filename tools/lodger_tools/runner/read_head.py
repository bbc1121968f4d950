"""The commit that a checkout's `main` points at, read without starting git and without following any link.

A checkout is written by an agent: its files may be FIFOs, links or huge (MEMORY-NOTES.md section 1).
"""

from __future__ import annotations

import os
from stat import S_ISREG

from lodger_tools.runner.file_errors import FileRefused
from lodger_tools.runner.text_files import read_up_to

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

REF_LIMIT_BYTES = 512
PACKED_LIMIT_BYTES = 4 * 1024 * 1024
MAIN = "refs/heads/main"
HEX_DIGITS = frozenset("0123456789abcdef")
FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def head_at_end(repository: str) -> dict[str, Any]:
    """For the end of a call: the commit in `head`, left out where it cannot be told."""
    try:
        return {"head": read_head(repository)[0]}
    except (FileRefused, OSError):
        return {}


def read_head(repository: str) -> tuple[str, dict[str, Any]]:
    """The commit (empty before the first one), and in `head` what HEAD says: a ref's name or a commit.

    Raises: FileRefused when it is not a plain repository; OSError.
    """
    top = os.open(repository, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            git = os.open(".git", FOLDER, dir_fd=top)
        except FileNotFoundError:
            git = os.dup(top)
    finally:
        os.close(top)
    try:
        head = small_file(git, "HEAD", REF_LIMIT_BYTES)
        if head is None:
            raise FileRefused(f"It is not a git repository: {repository}")
        name = head.strip().removeprefix("ref: ")
        loose = small_file(git, MAIN, REF_LIMIT_BYTES)
        commit = checked(loose.strip()) if loose is not None else packed(git)
        return commit, {"head": name[:REF_LIMIT_BYTES]}
    finally:
        os.close(git)


def small_file(folder: int, path: str, limit_bytes: int) -> str | None:
    """Raises: FileRefused for a link, for what is no regular file, and for one above the limit."""
    names = path.split("/")
    opened = []
    try:
        for name in names[:-1]:
            folder = os.open(name, FOLDER, dir_fd=folder)
            opened.append(folder)
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        fd = os.open(names[-1], flags, dir_fd=folder)
    except FileNotFoundError:
        return None
    finally:
        for parent in opened:
            os.close(parent)
    try:
        status = os.fstat(fd)
        if not S_ISREG(status.st_mode) or status.st_size > limit_bytes:
            raise FileRefused(f"The repository's {path} is not a plain small file.")
        return read_up_to(fd, limit_bytes).decode("utf-8", "replace")
    finally:
        os.close(fd)


def packed(git: int) -> str:
    # Searched rather than divided: of 4 MiB of empty lines that took a second, in which the whole box waited.
    text = "\n" + (small_file(git, "packed-refs", PACKED_LIMIT_BYTES) or "") + "\n"
    end = text.find(f" {MAIN}\n")
    return checked(text[text.rfind("\n", 0, end) + 1 : end]) if end >= 0 else ""


def checked(commit: str) -> str:
    if len(commit) in (40, 64) and HEX_DIGITS.issuperset(commit):
        return commit
    raise FileRefused("The repository's main does not hold a commit's name.")
