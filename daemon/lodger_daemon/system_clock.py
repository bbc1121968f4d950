"""The real clock, given to every room by the program's start."""

import asyncio
import time

from lodger_daemon.clock import MonoTime, WallTime


class SystemClock:
    """Implements `Clock` on the clocks of this machine."""

    def wall(self) -> WallTime:
        return WallTime(time.time())

    def mono(self) -> MonoTime:
        return MonoTime(time.monotonic())

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
