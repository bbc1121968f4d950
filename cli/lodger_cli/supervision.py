"""The hub under a service manager: the same words as the daemon's, without an uplink."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from lodger_daemon.service.notify import Notifier
from lodger_daemon.service.watchdog import keep_informed
from lodger_daemon.system_clock import SystemClock


@contextlib.asynccontextmanager
async def watched(notifier: Notifier) -> AsyncIterator[Callable[[str], None]]:
    """Gives a function to call once clients are let in, with one line about it; from then on the watchdog is fed.

    Leaving it says STOPPING.
    """
    tasks: list[asyncio.Task[None]] = []

    def ready(words: str) -> None:
        informing = keep_informed(notifier, SystemClock(), lambda: None, heartbeat_s=0.0, words=lambda _: words)
        tasks.append(asyncio.create_task(informing))

    try:
        yield ready
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(notifier.tell, "STOPPING=1")
