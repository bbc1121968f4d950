"""How often a box is looked into."""

from typing import Final

BUSY_S: Final = 1.0
LONGEST_S: Final = 15.0


def next_look_s(last_s: float, *, changed: bool) -> float:
    """Less and less often while nothing changes.

    Args:
        last_s: how long the last pause was.
    """
    return BUSY_S if changed else min(LONGEST_S, last_s * 2)
