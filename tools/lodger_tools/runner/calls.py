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

    __slots__ = ("_calls", "_dropped")

    def __init__(self) -> None:
        self._calls: dict[str, Call] = {}
        self._dropped: dict[str, None] = {}

    def find(self, key: str) -> Call | None:
        return self._calls.get(key)

    def was_dropped(self, key: str) -> bool:
        return key in self._dropped

    def add(self, call: Call) -> None:
        self._calls[call.key] = call
        self._make_room()

    def running(self) -> list[Call]:
        return [call for call in self._calls.values() if call.done is None]

    def _make_room(self) -> None:
        if len(self._calls) <= 1:
            return
        finished = [call for call in self._calls.values() if call.done is not None]
        size = sum(call.output.kept_bytes + len(call.text) for call in finished)
        count = len(finished)
        for call in sorted(finished, key=lambda call: not call.delivered):
            if count <= FINISHED_LIMIT and size <= FINISHED_BYTES_LIMIT:
                return
            count -= 1
            size -= call.output.kept_bytes + len(call.text)
            del self._calls[call.key]
            self._dropped[call.key] = None
            if len(self._dropped) > KEY_LIMIT:
                del self._dropped[next(iter(self._dropped))]
