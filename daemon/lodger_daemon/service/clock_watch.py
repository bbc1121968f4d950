"""Looks at the two clocks now and then and remembers the jumps."""

from collections import deque
from typing import Final

from lodger_daemon.clock import Clock
from lodger_daemon.service.core.clock_jumps import Jump, Reading, jump_between

LOOK_EVERY_S: Final = 60.0
"""Only for people who ask later when it was; whoever asks for status looks too."""
KEPT: Final = 8


class ClockWatch:
    """Event loop only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = self._read()
        self._jumps: deque[Jump] = deque(maxlen=KEPT)

    def jumps(self) -> tuple[Jump, ...]:
        """The latest ones, oldest first, as of now."""
        now = self._read()
        if jump := jump_between(self._last, now):
            self._jumps.append(jump)
        self._last = now
        return tuple(self._jumps)

    async def keep_looking(self) -> None:
        """Until cancelled."""
        while True:
            self.jumps()
            await self._clock.sleep(LOOK_EVERY_S)

    def _read(self) -> Reading:
        return Reading(self._clock.wall(), self._clock.mono())
