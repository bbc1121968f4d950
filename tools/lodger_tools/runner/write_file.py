"""Write: the whole content of a file, at once or not at all."""

# pathlib would cost the runner 8 ms of its start.
# ruff: noqa: PTH103, PTH104, PTH108, PTH116, PTH120
from __future__ import annotations

import errno
import os
from stat import S_IMODE, S_ISDIR, S_ISREG

from lodger_tools.runner.file_errors import FileRefused
from lodger_tools.runner.text_files import (
    FILE_LIMIT_BYTES,
    UTF8_MARK,
    read_bytes,
    refuse_if_changed,
    remember,
)

NEW_FILE_MODE = 0o666


def write_file(seen: dict[str, tuple[int, int]], path: str, content: bytes) -> str:
    """Raises: FileRefused; OSError. The file is then as it was."""
    if len(content) > FILE_LIMIT_BYTES:
        raise FileRefused(f"The content has {len(content)} bytes; the limit is {FILE_LIMIT_BYTES}.")
    real = os.path.realpath(path)
    old = existing(real)
    if old is None:
        os.makedirs(os.path.dirname(real), exist_ok=True)
        replace_file(real, content)
        remember(seen, real, content)
        return f"Created {path} ({len(content)} bytes)."
    refuse_if_changed(seen, real, old)
    kept = in_the_style_of(old, content)
    replace_file(real, kept)
    remember(seen, real, kept)
    return f"Wrote {path} ({len(kept)} bytes, before {len(old)})."


def existing(real: str) -> bytes | None:
    """The content now; empty for one that is too large to compare, which Write replaces all the same."""
    try:
        status = os.stat(real)
    except FileNotFoundError:
        return None
    if S_ISREG(status.st_mode) and status.st_size > FILE_LIMIT_BYTES:
        return b""
    return read_bytes(real)


def in_the_style_of(old: bytes, content: bytes) -> bytes:
    """Keep the byte-order mark and, where all lines of the old content end so, CRLF."""
    if old.startswith(UTF8_MARK) and not content.startswith(UTF8_MARK):
        content = UTF8_MARK + content
    line_ends = old.count(b"\n")
    if line_ends and old.count(b"\r\n") == line_ends and b"\r\n" not in content:
        content = content.replace(b"\n", b"\r\n")
    return content


def replace_file(real: str, content: bytes) -> None:
    """Write beside it and rename, so that a full disk or a kill never leaves half a file; the mode is kept.

    Not synced: after a power cut the old or the new content is there, as with every editor's save.
    """
    try:
        status: os.stat_result | None = os.lstat(real)
    except FileNotFoundError:
        status = None
    if status is not None and S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), real)
    if status is not None and not os.access(real, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), real)
    folder, _, name = real.rpartition("/")
    temporary = f"{folder}/.{name[:200]}.{os.urandom(6).hex()}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, NEW_FILE_MODE)
    try:
        try:
            if status is not None:
                os.fchmod(fd, S_IMODE(status.st_mode))
            view = memoryview(content)
            while view:
                view = view[os.write(fd, view) :]
        finally:
            os.close(fd)
        os.rename(temporary, real)
    except BaseException:
        os.unlink(temporary)
        raise
