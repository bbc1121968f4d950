"""Opening and decoding the files of a workspace, whatever they are: FIFOs, links, huge ones, binary ones."""

# pathlib would cost the runner 8 ms of its start.
# ruff: noqa: PTH115
from __future__ import annotations

import errno
import os
from stat import S_ISDIR, S_ISREG

from lodger_tools.runner.file_errors import FileRefused

FILE_LIMIT_BYTES = 10 * 1024 * 1024
"""BEHAVIOUR.md C3."""
SMALL_BYTES = 64 * 1024
"""For a larger buffer the C library maps fresh memory, which takes longer than reading a small file."""
BINARY_PROBE_BYTES = 8192
BINARY_CONTROL_SHARE = 0.3
UTF8_MARK = b"\xef\xbb\xbf"
CONTROL_BYTES = bytes(byte for byte in range(32) if byte not in b"\t\n\r\f\b\x1b") + b"\x7f"
IMAGE_MARKS = (
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"\xff\xd8\xff", "JPEG"),
    (b"GIF87a", "GIF"),
    (b"GIF89a", "GIF"),
    (b"BM", "BMP"),
)


def read_bytes(path: str) -> bytes:
    """The whole of a regular file.

    Raises: FileRefused for what is not one or is above 10 MB; OSError.
    """
    fd = opened(path)
    try:
        return content_of(fd, path)
    finally:
        os.close(fd)


def read_with_real_path(path: str) -> tuple[bytes, str]:
    """The same, and the file's path without links."""
    fd = opened(path)
    try:
        return content_of(fd, path), real_path_of(fd, path)
    finally:
        os.close(fd)


def opened(path: str) -> int:
    # Without O_NONBLOCK a FIFO would stop the runner until somebody writes to it.
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)


def content_of(fd: int, path: str) -> bytes:
    status = os.fstat(fd)
    if S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not S_ISREG(status.st_mode):
        raise FileRefused(f"It is neither a file nor a folder but a pipe, socket or device: {path}")
    if status.st_size > FILE_LIMIT_BYTES:
        raise FileRefused(
            f"The file has {status.st_size} bytes; the limit is {FILE_LIMIT_BYTES}. Use Grep, or Bash with head,"
            f" tail or sed, to look at a part: {path}"
        )
    return read_up_to(fd, FILE_LIMIT_BYTES + 1, max(SMALL_BYTES, status.st_size + 1))


def real_path_of(fd: int, path: str) -> str:
    """The path of an open file without links. The kernel knows it; to follow link by link takes as long as the rest of
    a Read."""
    try:
        real = os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        real = ""
    # Of a file that was removed meanwhile the kernel says so behind the path.
    return real if real.startswith("/") and not real.endswith(" (deleted)") else os.path.realpath(path)


def read_up_to(fd: int, limit_bytes: int, chunk_bytes: int = 1024 * 1024) -> bytes:
    parts = []
    while limit_bytes > 0:
        data = os.read(fd, min(limit_bytes, chunk_bytes))
        if not data:
            break
        parts.append(data)
        limit_bytes -= len(data)
    return b"".join(parts)


def image_kind(data: bytes) -> str:
    """The kind of image, or nothing."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WebP"
    return next(
        (kind for mark, kind in IMAGE_MARKS if data.startswith(mark) and (kind != "BMP" or b"\0" in data[:64])), ""
    )


def is_binary(data: bytes) -> bool:
    probe = data[:BINARY_PROBE_BYTES]
    if b"\0" in probe:
        return True
    controls = len(probe) - len(probe.translate(None, CONTROL_BYTES))
    return controls > BINARY_CONTROL_SHARE * len(probe)


def strict_text(data: bytes, path: str) -> str:
    """Raises: FileRefused when the bytes are not UTF-8: writing them back could not keep them."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise FileRefused(
            f"The file is not UTF-8 text (byte {error.start} is 0x{data[error.start]:02x}); change it with Bash: {path}"
        ) from None


def mark_of(data: bytes) -> tuple[int, int]:
    """What stands for a content when asking whether it changed. `hash` is keyed per process and 64 bits wide, which is
    enough where nobody gains by a collision, and costs no import."""
    return len(data), hash(data)


def remember(seen: dict[str, tuple[int, int]], real_path: str, data: bytes) -> None:
    seen.pop(real_path, None)
    seen[real_path] = mark_of(data)
    if len(seen) > 4096:
        del seen[next(iter(seen))]


def refuse_if_changed(seen: dict[str, tuple[int, int]], real_path: str, data: bytes) -> None:
    """Raises: FileRefused when the file is not what a tool here last read or wrote."""
    known = seen.get(real_path)
    if known is not None and known != mark_of(data):
        raise FileRefused(f"The file has changed since it was last read here; read it again first: {real_path}")
