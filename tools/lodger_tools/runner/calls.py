"""What the runner remembers of calls, so that a daemon that comes back gets every outcome and nothing runs twice."""

from __future__ import annotations

from lodger_tools.runner.kept_output import KeptOutput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

FINISHED_LIMIT = 256
FINISHED_BYTES_LIMIT = 32 * 1024 * 1024
KEY_LIMIT = 20_000
"""Keys without outcome that are still known; about 2 MiB. A box that ran more calls has long met a restart."""


class Call:
    """One call; `done` is set at its one end."""

    __slots__ = (
        "at_end",
        "cancel",
        "delivered",
        "done",
        "key",
        "out_of_memory",
        "output",
        "pid",
        "text",
        "watchers",
        "write",
    )

    def __init__(self, key: str, output: KeptOutput) -> None:
        self.key = key
        self.output = output
        self.pid: int | None = None
        self.done: dict[str, Any] | None = None
        self.text = b""
        self.delivered = False
        self.cancel: Callable[[], None] = lambda: None
        self.write: Callable[[bytes], bool] = lambda data: False
        """To its standard input; False when it takes none."""
        self.out_of_memory: Callable[[], None] = lambda: None
        self.at_end: Callable[[], dict[str, Any]] = dict
        """What else there is to tell of the end, looked up once, when it is set."""
        self.watchers: list[Callable[[], None]] = []
        """Called after new output and at the end."""

    @property
    def kept_bytes(self) -> int:
        return self.output.kept_bytes + len(self.text)

    def changed(self) -> None:
        for watcher in tuple(self.watchers):
            watcher()

    def finish(self, status: str, text: str = "", **more: Any) -> None:
        """Set the end; the first one stands."""
        if self.done is not None:
            return
        self.done = {"status": status, **more, **self.at_end()}
        self.text = text.encode("utf-8", "replace")
        self.changed()


class CallBook:
    """All calls of this box by their keys. Finished ones are dropped oldest first, delivered ones before others."""

    __slots__ = ("_calls", "_dropped", "_finished", "_finished_bytes", "_running")

    def __init__(self) -> None:
        self._calls: dict[str, Call] = {}
        self._running: dict[str, Call] = {}
        """And those that have ended since somebody last asked: a call does not look at all that ran before it."""
        self._finished: dict[str, Call] = {}
        self._finished_bytes = 0
        self._dropped: dict[str, None] = {}

    def find(self, key: str) -> Call | None:
        return self._calls.get(key)

    def was_dropped(self, key: str) -> bool:
        return key in self._dropped

    def add(self, call: Call) -> None:
        self._calls[call.key] = self._running[call.key] = call
        self._make_room()

    def running(self) -> list[Call]:
        for call in tuple(self._running.values()):
            if call.done is not None:
                del self._running[call.key]
                self._finished[call.key] = call
                self._finished_bytes += call.kept_bytes
        return list(self._running.values())

    def _make_room(self) -> None:
        self.running()
        while len(self._finished) > FINISHED_LIMIT or self._finished_bytes > FINISHED_BYTES_LIMIT:
            oldest = next(iter(self._finished.values()))
            self._drop(next((call for call in self._finished.values() if call.delivered), oldest))

    def _drop(self, call: Call) -> None:
        del self._calls[call.key], self._finished[call.key]
        self._finished_bytes -= call.kept_bytes
        self._dropped[call.key] = None
        if len(self._dropped) > KEY_LIMIT:
            del self._dropped[next(iter(self._dropped))]
