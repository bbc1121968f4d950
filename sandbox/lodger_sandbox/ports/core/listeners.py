"""Which TCP ports of a box can be reached over its loopback, from the kernel's own tables (proc(5), net/tcp)."""

import sys
from typing import Final

_LISTEN: Final = b"0A"
_WORD_BYTES: Final = 4
REACHABLE: Final = frozenset(
    {
        bytes(4),  # 0.0.0.0
        bytes((127, 0, 0, 1)),
        bytes(16),  # ::
        bytes(15) + b"\1",  # ::1
        bytes(10) + b"\xff\xff" + bytes(4),
        bytes(10) + b"\xff\xff" + bytes((127, 0, 0, 1)),
    }
)


def listening_ports(*tables: bytes) -> frozenset[int]:
    """
    Args:
        tables: contents of `net/tcp` and `net/tcp6`. Where one was cut off in mid-line, that line is left out.
    """
    return frozenset(
        port for table in tables for line in table.splitlines(keepends=True)[1:] if (port := _port(line)) is not None
    )


def _port(line: bytes) -> int | None:
    words = line.split()
    if len(words) < 4 or words[3] != _LISTEN or not line.endswith(b"\n"):
        return None
    address, _, port = words[1].partition(b":")
    try:
        return int(port, 16) if _address(address) in REACHABLE else None
    except ValueError:
        return None


def _address(text: bytes) -> bytes:
    """The kernel writes addresses as words in the machine's own byte order. Raises: ValueError."""
    step = 2 * _WORD_BYTES
    words = (int(text[start : start + step], 16) for start in range(0, len(text), step))
    return b"".join(word.to_bytes(_WORD_BYTES, sys.byteorder) for word in words)
