"""Lines of a log, from a file of ours or from journald, as records: pure."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

_LINE: Final = re.compile(
    r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) (DEBUG|INFO|WARNING|ERROR|CRITICAL) (\S+): (.*)", re.DOTALL
)
"""As every program of ours writes one. Anything else belongs to the line before it."""
UNIT_FIELDS: Final = ("_SYSTEMD_USER_UNIT", "_SYSTEMD_UNIT", "USER_UNIT", "UNIT")
"""Where journald names the unit; the last two are those of the manager's own words about it."""


@dataclass(frozen=True, slots=True)
class Record:
    part: str
    """`daemon` or `hub`."""
    at: float | None
    """Wall seconds; None for a first line that bears no time."""
    level: str | None
    logger: str
    message: str

    def text(self, *, with_part: bool) -> str:
        """For a person, in local time."""
        when = (
            "" if self.at is None else datetime.fromtimestamp(self.at, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S ")
        )
        source = f"{self.part} " if with_part else ""
        level = f"{self.level} " if self.level else ""
        logger = f"{self.logger}: " if self.logger else ""
        return f"{when}{source}{level}{logger}{self.message}"


def read_line(part: str, line: str, at: float | None = None) -> Record:
    """One line by itself. A time in the line wins over `at`."""
    found = _LINE.fullmatch(line)
    if found is None:
        return Record(part, at, None, "", line)
    written, level, logger, message = found.groups()
    when = datetime.strptime(written, "%Y-%m-%d %H:%M:%S,%f").astimezone()  # in local time, as logging writes it
    return Record(part, when.timestamp(), level, logger, message)


def read_file(part: str, lines: Iterable[str]) -> Iterator[Record]:
    """A log file's lines: those of a traceback join the line they belong to."""
    pending: Record | None = None
    for line in lines:
        record = read_line(part, line)
        if record.level is None and pending is not None:
            pending = replace(pending, message=f"{pending.message}\n{record.message}")
            continue
        if pending is not None:
            yield pending
        pending = record
    if pending is not None:
        yield pending


def read_journal(line: str, part_of_unit: dict[str, str]) -> Record | None:
    """One line of `journalctl --output=json`; None for what is no record of ours."""
    try:
        entry = json.loads(line)
        at = int(entry["__REALTIME_TIMESTAMP"]) / 1e6
    except (ValueError, KeyError, TypeError):
        return None
    unit = next((entry[field] for field in UNIT_FIELDS if entry.get(field) in part_of_unit), None)
    if unit is None:
        return None
    # A message with bytes that are no text comes as a list of them.
    message = entry.get("MESSAGE")
    if isinstance(message, list):
        message = bytes(byte & 255 for byte in message if isinstance(byte, int)).decode("utf-8", "replace")
    return read_line(part_of_unit[unit], str(message or ""), at)


def latest(records: Iterable[Record], count: int) -> list[Record]:
    """The last so many by time, in its order; one without a time stays where it is."""
    placed, before = [], 0.0
    for record in records:
        before = record.at if record.at is not None else before
        placed.append((before, record))
    placed.sort(key=lambda pair: pair[0])
    return [record for _, record in placed[max(0, len(placed) - count) :]]
