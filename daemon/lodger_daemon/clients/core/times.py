"""Instants as the wire writes them: ISO 8601, UTC, milliseconds."""

from datetime import UTC, datetime

from lodger_daemon.clock import WallTime


class TimestampWriter:
    """Writes instants, and remembers the text of the current second: a stream of deltas asks hundreds of times."""

    def __init__(self) -> None:
        self._second = -1
        self._prefix = ""

    def write(self, at: WallTime) -> str:
        milliseconds_total = int(at * 1000)
        second, milliseconds = divmod(milliseconds_total, 1000)
        if second != self._second:
            self._second = second
            self._prefix = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{self._prefix}.{milliseconds:03d}Z"


_WRITER = TimestampWriter()


def iso(at: WallTime) -> str:
    """One instant as text."""
    return _WRITER.write(at)


def iso_or_none(at: WallTime | None) -> str | None:
    return None if at is None else _WRITER.write(at)
