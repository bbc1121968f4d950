"""A pseudo terminal for one command."""

from __future__ import annotations

import os
import sys

ROWS, COLUMNS = 40, 120
TIOCSWINSZ = 0x5414
"""Of Linux on the architectures this runs on."""


def open_terminal(kept: list[int], given: list[int]) -> tuple[int, int, str]:
    """The end to read and write, the end of the command, and its name; both are also put where `close_all` will
    find them. Raises: OSError."""
    import fcntl

    ours, theirs = os.openpty()
    kept.append(ours)
    given.append(theirs)
    size = b"".join(number.to_bytes(2, sys.byteorder) for number in (ROWS, COLUMNS, 0, 0))
    fcntl.ioctl(theirs, TIOCSWINSZ, size)
    return ours, theirs, os.ttyname(theirs)
