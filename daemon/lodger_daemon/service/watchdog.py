"""The task that keeps the service manager informed while we run."""

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Final

from lodger_daemon.clock import Clock
from lodger_daemon.service.core.watchdog import Fed, Withheld, is_moving, judge, status_words
from lodger_daemon.service.notify import Notifier
from lodger_daemon.uplink.core.status import UplinkStatus

LOOK_AGAIN_S: Final = 1.0
"""While food is withheld: a trouble that passes must not cost the process its life for want of a look. Also while the
uplink takes a step, so that the status line is not behind for long."""
LOOK_S: Final = 5.0
"""While all is quiet."""

_LOG: Final = logging.getLogger(__name__)


async def keep_informed(
    notifier: Notifier,
    clock: Clock,
    uplink: Callable[[], UplinkStatus | None],
    heartbeat_s: float,
    words: Callable[[UplinkStatus | None], str] = status_words,
) -> None:
    """Say READY, then feed the watchdog every half of its time and tell what changes, until cancelled.

    Call it once clients are let in. Returns at once when no manager listens.
    """
    if not notifier.address:
        return
    feed_every_s = math.inf if notifier.watchdog_s is None else notifier.watchdog_s / 2
    news, said, withheld, late_s, feed_at = ["READY=1"], "", "", 0.0, 0.0
    while True:
        status, now = uplink(), clock.mono()
        if (told := " ".join(words(status).split())) != said:
            said = told
            news.append(f"STATUS={told}")
        match judge(late_s, status, clock.wall(), heartbeat_s):
            case Fed():
                withheld = ""
                if notifier.watchdog_s is not None and now >= feed_at:
                    feed_at = now + feed_every_s
                    news.append("WATCHDOG=1")
            case Withheld(reason):
                if not withheld:
                    _LOG.warning("the watchdog is not fed: %s", reason)
                withheld = reason
        if news:
            await asyncio.to_thread(notifier.tell, *news)
            news = []
        pause_s = min(LOOK_AGAIN_S if withheld or is_moving(status) else LOOK_S, feed_every_s)
        if not withheld and feed_at > 0:
            pause_s = min(pause_s, max(0.0, feed_at - clock.mono()))
        due = clock.mono() + pause_s
        await clock.sleep(pause_s)
        late_s = clock.mono() - due
