"""Whether the other side is still there: counted in unanswered probes, never in time.

A program that was held up for minutes has sent no probe in that time, so it has none unanswered; only a peer that was
asked and stayed silent is given up.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

PROBE_INTERVAL_S: Final = 20.0
UNANSWERED_LIMIT: Final = 3
"""With the interval above, silence is noticed after at most 80 s; 90 s are promised (ATTACKS.md R6)."""

WAKE_PROBE_INTERVAL_S: Final = 1.0
WAKE_UNANSWERED_LIMIT: Final = 2
"""After a wake the link is most often dead; asked twice, quickly, that is known 2 s after the wake was seen (R7)."""


class Beat(StrEnum):
    PROBE = "probe"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class HeartbeatState:
    unanswered: int = 0
    waking: bool = False

    def heard(self) -> "HeartbeatState":
        """Any frame proves the peer alive."""
        return HeartbeatState()

    def woke(self) -> "HeartbeatState":
        """What was unanswered before the sleep says nothing about now."""
        return HeartbeatState(waking=True)


def on_tick(state: HeartbeatState) -> tuple[HeartbeatState, Beat]:
    """One interval has passed."""
    limit = WAKE_UNANSWERED_LIMIT if state.waking else UNANSWERED_LIMIT
    if state.unanswered >= limit:
        return state, Beat.DEAD
    return HeartbeatState(state.unanswered + 1, state.waking), Beat.PROBE
