"""Waits that have a limit on the one clock."""

import asyncio

from lodger_daemon.clock import Clock


async def set_within(event: asyncio.Event, limit_s: float, clock: Clock) -> bool:
    """Whether the event is set once it has been waited for, at most so long."""
    waits = (asyncio.ensure_future(event.wait()), asyncio.ensure_future(clock.sleep(limit_s)))
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waits:
            one.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
    return event.is_set()
