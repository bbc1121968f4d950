"""Files of ours: whole, private, on disk before they have their name, and named on disk before anybody is told."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lodger_daemon.durable_files import make_durably, name_durably, write_durably


def name_a_draft(path: Path, text: str) -> None:
    draft = path.with_name("draft")
    draft.write_text(text)
    draft.chmod(0o600)
    try:
        name_durably(draft, path)
    finally:
        draft.unlink()


@pytest.mark.parametrize("put", [write_durably, make_durably, name_a_draft])
def test_a_file_is_on_disk_before_its_name_and_its_name_before_the_end(
    put: Callable[[Path, str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, synced, sync = tmp_path / "file", [], os.fsync

    def noted(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_ino, path.exists()))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    put(path, "whole\n")
    assert synced == [(path.stat().st_ino, False), (tmp_path.stat().st_ino, True)]
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("whole\n", 0o600)
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("put", [make_durably, name_a_draft])
def test_what_stands_there_already_stays_where_a_file_is_only_to_be_made(
    put: Callable[[Path, str], None], tmp_path: Path
) -> None:
    path = tmp_path / "file"
    path.write_text("first\n")
    with pytest.raises(FileExistsError):
        put(path, "second\n")
    assert path.read_text() == "first\n"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_disk_that_takes_no_more_leaves_the_old_text_and_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "file"
    write_durably(path, "old\n")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_durably(path, "new\n")
    assert path.read_text() == "old\n"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]
