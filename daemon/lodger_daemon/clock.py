"""Time as an argument: the one clock every room is given, and its two kinds of instant.

Wall time may jump (sleep, NTP, a person). Monotonic time never goes back but stops while some machines sleep. Waits
and limits use monotonic time; what is shown or stored uses wall time.
"""

from typing import NewType, Protocol

WallTime = NewType("WallTime", float)
"""Seconds since the epoch, UTC."""

MonoTime = NewType("MonoTime", float)
"""Seconds on the monotonic clock of this process; never stored."""


class Clock(Protocol):
    """Where a room gets the time from, and how it waits."""

    def wall(self) -> WallTime: ...

    def mono(self) -> MonoTime: ...

    async def sleep(self, delay_s: float) -> None:
        """Return after `delay_s` seconds of monotonic time. Cancelling the waiter is how a wait is aborted."""
        ...
