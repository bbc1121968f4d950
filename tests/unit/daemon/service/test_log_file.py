"""The log of a machine without a journal stays small and private."""

import logging
from logging.handlers import RotatingFileHandler
from pathlib import Path

import pytest

from lodger_daemon.service import log_file


def test_it_rotates_and_only_its_owner_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_file, "SIZE_BYTES", 2000)
    root = logging.getLogger()
    level = root.level
    path = tmp_path / "logs" / "daemon.log"
    log_file.log_to(path)
    [handler] = [one for one in root.handlers if isinstance(one, RotatingFileHandler)]
    try:
        for number in range(200):
            logging.getLogger("lodger").info("line %d of a long-lived daemon", number)
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
        handler.close()
    names = sorted(entry.name for entry in path.parent.iterdir())
    assert names == ["daemon.log", "daemon.log.1", "daemon.log.2", "daemon.log.3"]
    assert all(entry.stat().st_size <= 2000 for entry in path.parent.iterdir())
    assert "line 199" in path.read_text()
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0
