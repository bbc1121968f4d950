"""Lines of logs as records, and log files that rotate under a reader."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from lodger_cli.log_files import LONGEST_LINE_BYTES, LogFile
from lodger_cli.log_records import Record, latest, read_file, read_journal, read_line
from lodger_daemon.service import log_file

UNITS = {"lodger-daemon.service": "daemon"}


@pytest.fixture
def root_logger() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield root
    for handler in [one for one in root.handlers if one not in handlers]:
        root.removeHandler(handler)
        handler.close()
    root.setLevel(level)


def test_what_our_logging_writes_is_read_back(tmp_path: Path, root_logger: logging.Logger) -> None:
    path = tmp_path / "daemon.log"
    log_file.log_to(path)
    logging.getLogger("a.room").warning("two: %s", "colons: here")
    try:
        raise ValueError("why")
    except ValueError:
        logging.getLogger("a.room").exception("it failed")
    file = LogFile(path)
    first, second = read_file("daemon", file.last(100))
    file.close()
    assert (first.part, first.level, first.logger, first.message) == (
        "daemon",
        "WARNING",
        "a.room",
        "two: colons: here",
    )
    assert first.at is not None
    assert abs(first.at - path.stat().st_mtime) < 5
    assert second.message.startswith("it failed\nTraceback (most recent call last):")
    assert second.message.endswith("ValueError: why")


def test_a_reader_that_follows_sees_each_line_once_through_rotation(
    tmp_path: Path, root_logger: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_file, "SIZE_BYTES", 2000)
    path = tmp_path / "hub.log"
    log_file.log_to(path)
    logger = logging.getLogger("x")
    for number in range(5):
        logger.info("before %d", number)
    file = LogFile(path)
    seen = [read_line("hub", line).message for line in file.last(3)]
    for number in range(100):
        logger.info("then %d", number)
        if number % 7 == 0:
            seen += [read_line("hub", line).message for line in file.news()]
    seen += [read_line("hub", line).message for line in file.news()]
    file.close()
    assert (tmp_path / "hub.log.1").exists()
    assert seen == [f"before {number}" for number in (2, 3, 4)] + [f"then {number}" for number in range(100)]


def test_the_last_lines_reach_back_into_rotated_files(tmp_path: Path) -> None:
    for name, text in (("d.log.2", "1\n2\n"), ("d.log.1", "3\n4\n"), ("d.log", "5\n6\nhalf")):
        (tmp_path / name).write_text(text)
    file = LogFile(tmp_path / "d.log")
    assert file.last(3) == ["4", "5", "6"]
    with (tmp_path / "d.log").open("a") as more:
        more.write(" a line\n")
    assert list(file.news()) == ["half a line"]
    file.close()
    again = LogFile(tmp_path / "d.log")
    assert again.last(100) == ["1", "2", "3", "4", "5", "6", "half a line"]
    again.close()


def test_a_log_that_begins_later_is_followed_and_a_line_without_end_is_shown_in_parts(tmp_path: Path) -> None:
    file = LogFile(tmp_path / "d.log")
    assert file.last(10) == []
    assert list(file.news()) == []
    (tmp_path / "d.log").write_bytes(b"first\n" + b"x" * (LONGEST_LINE_BYTES + 1))
    assert [len(line) for line in file.news()] == [5, LONGEST_LINE_BYTES + 1]
    file.close()


def journal(**fields: object) -> str:
    return json.dumps(
        {"__REALTIME_TIMESTAMP": "1800000000500000", "_SYSTEMD_USER_UNIT": "lodger-daemon.service", **fields}
    )


@pytest.mark.parametrize(
    ("line", "record"),
    [
        (journal(MESSAGE="said"), Record("daemon", 1_800_000_000.5, None, "", "said")),
        (journal(MESSAGE=[104, 105, 27, 255]), Record("daemon", 1_800_000_000.5, None, "", "hi\x1b\ufffd")),
        (journal(MESSAGE=None), Record("daemon", 1_800_000_000.5, None, "", "")),
        (journal(MESSAGE="x", _SYSTEMD_USER_UNIT="init.scope", USER_UNIT="lodger-daemon.service"),
         Record("daemon", 1_800_000_000.5, None, "", "x")),
        (journal(MESSAGE="x", _SYSTEMD_USER_UNIT="other.service"), None),
        (journal(MESSAGE="x", __REALTIME_TIMESTAMP="soon"), None),
        ("[1]", None),
        ("{", None),
    ],
)  # fmt: skip
def test_journald_is_understood(line: str, record: Record | None) -> None:
    assert read_journal(line, UNITS) == record


def test_a_line_of_ours_in_the_journal_keeps_its_level_and_its_own_time() -> None:
    record = read_journal(journal(MESSAGE="2026-11-30 19:45:36,123 ERROR a.room: text"), UNITS)
    assert record is not None
    assert (record.level, record.logger, record.message) == ("ERROR", "a.room", "text")
    assert record.at is not None
    assert record.at % 1 == pytest.approx(0.123, abs=1e-3)
    assert record.text(with_part=True) == "2026-11-30 19:45:36 daemon ERROR a.room: text"


def test_two_logs_become_one_in_the_order_of_time() -> None:
    def records(part: str, *times: float | None) -> list[Record]:
        return [Record(part, at, None, "", str(at)) for at in times]

    both = [*records("daemon", 1, None, 5), *records("hub", 2, 3)]
    assert [(one.part, one.at) for one in latest(both, 4)] == [
        ("daemon", None), ("hub", 2), ("hub", 3), ("daemon", 5),
    ]  # fmt: skip
    assert latest(both, 0) == []


def test_a_line_written_right_before_a_rotation_is_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "d.log"
    path.write_text("")
    file = LogFile(path)
    assert file.last(10) == []
    path.write_text("one\n")
    coming = file.news()
    assert next(coming) == "one"
    with path.open("a") as log:
        log.write("two\n")
    path.rename(tmp_path / "d.log.1")
    path.write_text("three\n")
    assert list(coming) == ["two", "three"]
    file.close()
