"""When the wall clock went another way than time did: somebody or NTP set it, or the machine slept."""

from dataclasses import dataclass
from typing import Final

from lodger_daemon.clock import MonoTime, WallTime

JUMP_S: Final = 2.0
"""Slewing (0.5 ms a second) stays far below it between two looks; what is larger moves shown ages and stored times."""


@dataclass(frozen=True, slots=True)
class Reading:
    wall: WallTime
    mono: MonoTime


@dataclass(frozen=True, slots=True)
class Jump:
    at: WallTime
    """When it was noticed, by the clock as it is since."""
    by_s: float
    """Forward is positive. A sleep of the machine is one too where monotonic time stands still meanwhile."""


def jump_between(before: Reading, after: Reading) -> Jump | None:
    by_s = (after.wall - before.wall) - (after.mono - before.mono)
    return Jump(after.wall, by_s) if abs(by_s) >= JUMP_S else None
