"""Waits that have a limit on the one clock, and for the first of several."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from lodger_daemon.clock import Clock


async def until_one_ends(*parts: Coroutine[Any, Any, object]) -> None:
    """Side by side; then the others are cancelled, and none runs any more when this returns. Raises: what the first one
    ended with."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def set_within(event: asyncio.Event, limit_s: float, clock: Clock) -> bool:
    """Whether the event is set once it has been waited for, at most so long."""
    await until_one_ends(event.wait(), clock.sleep(limit_s))
    return event.is_set()
