"""Noticing that the machine slept or the process was stopped."""

from dataclasses import dataclass
from typing import Final

CHECK_INTERVAL_S: Final = 2.0
"""First byte after a wake within 5 s (ATTACKS.md R7)."""
JUMP_S: Final = 20.0
"""More than any hold-up that needs no fresh look at the link. Clock corrections of this size only cost a probe."""


@dataclass(frozen=True, slots=True)
class ClockReading:
    wall: float
    mono: float


def woke(before: ClockReading, after: ClockReading, expected_s: float = CHECK_INTERVAL_S) -> bool:
    """Whether far more time went by than was waited for. Suspend moves only the wall clock on most systems; a stopped
    process sees both move."""
    passed = max(after.wall - before.wall, after.mono - before.mono)
    return passed - expected_s > JUMP_S
