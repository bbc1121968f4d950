"""Server-sent events, read from bytes that may be cut anywhere."""

from dataclasses import dataclass
from typing import Final

from lodger_daemon.models.contract import FailureKind, ModelFailure

EVENT_LIMIT_BYTES: Final = 16 * 1024 * 1024
"""One event. The largest seen in practice, an image in an answer, is a few megabytes."""


@dataclass(frozen=True, slots=True)
class ServerEvent:
    name: str
    """Empty when the stream names none."""
    data: str


class EventReader:
    """Feed bytes, get whole events. Comments, ids and retry hints are dropped."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._name = ""
        self._data: list[str] = []
        self._size_bytes = 0
        self._at_start = True

    def feed(self, data: bytes) -> list[ServerEvent]:
        """Raises: ModelFailure when one event grows beyond `EVENT_LIMIT_BYTES`."""
        self._rest += data
        lines: list[bytearray] = []
        if b"\n" in data:
            *lines, self._rest = self._rest.split(b"\n")
        if self._size_bytes + len(self._rest) > EVENT_LIMIT_BYTES:
            raise ModelFailure(FailureKind.SERVER, "The provider sent an event of more than 16 MiB.")
        events: list[ServerEvent] = []
        for line in lines:
            self._line(line, events)
        return events

    def finish(self) -> list[ServerEvent]:
        """The stream is over: an event without its closing blank line still counts."""
        events: list[ServerEvent] = []
        self._line(self._rest, events)
        self._rest = bytearray()
        self._dispatch(events)
        return events

    def _line(self, raw: bytearray, events: list[ServerEvent]) -> None:
        if self._at_start:
            raw = raw.removeprefix(b"\xef\xbb\xbf")
            self._at_start = False
        raw = raw.removesuffix(b"\r")
        if not raw:
            self._dispatch(events)
            return
        self._size_bytes += len(raw)
        if self._size_bytes > EVENT_LIMIT_BYTES:
            raise ModelFailure(FailureKind.SERVER, "The provider sent an event of more than 16 MiB.")
        field, _, value = raw.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value.decode("utf-8", "replace"))
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")

    def _dispatch(self, events: list[ServerEvent]) -> None:
        if self._data:
            events.append(ServerEvent(self._name, "\n".join(self._data)))
        self._name = ""
        self._data = []
        self._size_bytes = 0
