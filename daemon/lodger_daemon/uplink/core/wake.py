"""Noticing that the machine slept, or that the process was stopped or held up."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

CHECK_INTERVAL_S: Final = 2.0
"""First byte after a wake within 5 s (ATTACKS.md R7)."""
HELD_UP_S: Final = 2.0
"""With the interval above, a stop of 4 s is always seen. It costs one probe more than planned and proves nothing about
the link, so nothing is concluded from it: a busy machine on a slow path must not lose its connection to this."""
SLEPT_S: Final = 20.0
"""More than any hold-up that needs no fresh look at the link. Clock corrections of this size only cost a probe."""


class Gap(StrEnum):
    """How much more time went by than was waited for."""

    NONE = "none"
    HELD_UP = "held_up"
    SLEPT = "slept"


@dataclass(frozen=True, slots=True)
class ClockReading:
    wall: float
    mono: float


def gap_between(before: ClockReading, after: ClockReading, expected_s: float = CHECK_INTERVAL_S) -> Gap:
    """Suspend moves only the wall clock on most systems; a stopped process sees both move."""
    over_s = max(after.wall - before.wall, after.mono - before.mono) - expected_s
    if over_s > SLEPT_S:
        return Gap.SLEPT
    return Gap.HELD_UP if over_s > HELD_UP_S else Gap.NONE
