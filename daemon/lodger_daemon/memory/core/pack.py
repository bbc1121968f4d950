"""Taking a pack apart in memory, before git sees it.

This is the only real cap on size: git's own limits count compressed bytes. Every object is refused by its declared
size before it is inflated, and only whole commits, trees and blobs are taken.
"""

import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_KINDS: Final = {1: "commit", 2: "tree", 3: "blob"}
_TRAILER_BYTES: Final = 20


IN_PARTS: Final = (
    "take the commit back with `git reset --soft` and commit less at a time, with a command of its own for each commit"
)


@dataclass(frozen=True, slots=True)
class PackLimits:
    objects: int = 50_000
    object_bytes: int = 2 * 1024 * 1024
    """Above the validator's limit for a file, so that a merely large file gets its friendlier words."""
    total_bytes: int = 96 * 1024 * 1024
    """Inflated; all of it is held in memory for a moment."""


class BadPack(Exception):
    """The text says what is wrong."""


def scan_pack(data: bytes, limits: PackLimits) -> dict[str, tuple[str, bytes]]:
    """Every object of a pack by its id: kind and content. The ids are computed here, not believed.

    Raises: BadPack.
    """
    if len(data) < 12 + _TRAILER_BYTES or data[:8] != b"PACK\0\0\0\2":
        raise BadPack("this is not a pack of version 2")
    count = int.from_bytes(data[8:12], "big")
    if count > limits.objects:
        raise BadPack(f"{count:,} objects at once; at most {limits.objects:,} are taken: {IN_PARTS}")
    end = len(data) - _TRAILER_BYTES
    if hashlib.sha1(data[:end], usedforsecurity=False).digest() != data[end:]:
        raise BadPack("the pack is damaged or cut short")
    objects: dict[str, tuple[str, bytes]] = {}
    at, total = 12, 0
    for _ in range(count):
        kind, size, at = _entry_head(data, at, end)
        total += size
        if size > limits.object_bytes:
            raise BadPack(f"an object of {size} bytes; at most {limits.object_bytes} are taken")
        if total > limits.total_bytes:
            raise BadPack(f"more than {limits.total_bytes:,} bytes at once: {IN_PARTS}")
        content, at = _inflate(data, at, end, size)
        objects[object_id(kind, content)] = (kind, content)
    if at != end:
        raise BadPack("there is more in the pack than it says")
    return objects


def objects_in(pack: bytes) -> int:
    """How many a pack of our own git says it has."""
    return int.from_bytes(pack[8:12], "big")


def make_pack(objects: Sequence[tuple[str, bytes]]) -> bytes:
    """A pack of these objects, each a kind and its content."""
    numbers = {kind: number for number, kind in _KINDS.items()}
    parts = [b"PACK\0\0\0\2" + len(objects).to_bytes(4, "big")]
    for kind, content in objects:
        size = len(content)
        byte, size = (numbers[kind] << 4) | (size & 15), size >> 4
        head = bytearray()
        while size:
            head.append(byte | 0x80)
            byte, size = size & 0x7F, size >> 7
        head.append(byte)
        parts += [bytes(head), zlib.compress(content)]
    body = b"".join(parts)
    return body + hashlib.sha1(body, usedforsecurity=False).digest()


def object_id(kind: str, content: bytes) -> str:
    head = b"%s %d\0" % (kind.encode(), len(content))
    return hashlib.sha1(head + content, usedforsecurity=False).hexdigest()


def _entry_head(data: bytes, at: int, end: int) -> tuple[str, int, int]:
    if at >= end:
        raise BadPack("the pack is cut short")
    byte = data[at]
    kind = _KINDS.get((byte >> 4) & 7)
    if kind is None:
        raise BadPack("only whole commits, trees and files are taken: no tags, no deltas")
    size, shift, at = byte & 15, 4, at + 1
    while byte & 0x80:
        if at >= end or shift > 40:
            raise BadPack("an object's size cannot be read")
        byte = data[at]
        size |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
    return kind, size, at


def _inflate(data: bytes, at: int, end: int, size: int) -> tuple[bytes, int]:
    inflater = zlib.decompressobj()
    # Twice the size and a margin is more than deflate ever needs for content of that size.
    window = memoryview(data)[at : min(end, at + 2 * size + 1024)]
    try:
        content = inflater.decompress(window, size + 1)
    except zlib.error:
        raise BadPack("an object cannot be inflated") from None
    if len(content) != size or not inflater.eof:
        raise BadPack("an object is not as large as it says")
    return content, at + len(window) - len(inflater.unused_data)
