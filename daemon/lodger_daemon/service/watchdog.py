"""The task that keeps the service manager informed while we run."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from lodger_daemon.clock import Clock
from lodger_daemon.service.core.watchdog import Fed, Withheld, judge, status_words
from lodger_daemon.service.notify import Notifier
from lodger_daemon.uplink.core.status import UplinkStatus

LOOK_AGAIN_S: Final = 1.0
"""While food is withheld: a trouble that passes must not cost the process its life for want of a look."""
UNWATCHED_S: Final = 15.0
"""How often the status line is brought up to date when nobody watches."""

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
    feed_every_s = UNWATCHED_S if notifier.watchdog_s is None else notifier.watchdog_s / 2
    said, withheld, late_s = "", "", 0.0
    first = ["READY=1"]
    while True:
        status = uplink()
        verdict = judge(late_s, status, clock.wall(), heartbeat_s)
        news, first = first, []
        if (now_words := words(status)) != said:
            said = now_words
            news.append(f"STATUS={_one_line(now_words)}")
        match verdict:
            case Fed():
                if notifier.watchdog_s is not None:
                    news.append("WATCHDOG=1")
                pause_s, withheld = feed_every_s, ""
            case Withheld(reason):
                if not withheld:
                    _LOG.warning("the watchdog is not fed: %s", reason)
                pause_s, withheld = min(LOOK_AGAIN_S, feed_every_s), reason
        if news:
            await asyncio.to_thread(notifier.tell, *news)
        due = clock.mono() + pause_s
        await clock.sleep(pause_s)
        late_s = clock.mono() - due


def _one_line(text: str) -> str:
    return " ".join(text.split())
