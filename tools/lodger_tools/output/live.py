"""A running command's output, redacted, shown while it runs: at once, then at most every 100 ms."""

import asyncio
import codecs
from collections.abc import Callable
from typing import Final

from lodger_tools.output.core.snapshot import Snapshot
from lodger_tools.redaction.core.escapes import StrippedStream
from lodger_tools.redaction.core.redactor import RedactedStream, Redactor

INTERVAL_S: Final = 0.1


class LiveOutput:
    """Takes bytes on the event loop and calls `show` with the whole text so far (30,000 characters at most)."""

    def __init__(self, redactor: Redactor, show: Callable[[str], None]) -> None:
        self._show = show
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stripped = StrippedStream()
        self._redacted = RedactedStream(redactor)
        self._snapshot = Snapshot()
        self._timer: asyncio.TimerHandle | None = None
        self._stale = False

    def take(self, data: bytes) -> None:
        text = self._redacted.feed(self._stripped.feed(self._decoder.decode(data)))
        if not text:
            return
        self._snapshot.add(text)
        if self._timer is None:
            self._show_now()
        else:
            self._stale = True

    def close(self) -> None:
        """Show nothing more; the call's result has the rest."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _show_now(self) -> None:
        self._stale = False
        self._timer = asyncio.get_running_loop().call_later(INTERVAL_S, self._interval_over)
        self._show(self._snapshot.text())

    def _interval_over(self) -> None:
        self._timer = None
        if self._stale:
            self._show_now()
