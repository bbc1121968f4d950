"""A settings file that is none: the start fails closed, at once and with words."""

import os
from pathlib import Path

import pytest

from lodger_daemon.service.settings import SETTINGS_LIMIT_BYTES, SettingsError, load_settings


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def make_folder(path: Path) -> None:
    path.mkdir()


def make_large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(SETTINGS_LIMIT_BYTES * 4096)


@pytest.mark.parametrize("make", [make_pipe, make_endless, make_folder, make_large])
def test_is_refused_at_once(make: "object", tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    make(path)  # type: ignore[operator]
    with pytest.raises(SettingsError, match=r"settings\.toml"):
        load_settings(path)


def test_control_a_file_or_a_link_to_one_is_read(tmp_path: Path) -> None:
    (tmp_path / "real.toml").write_text('[permissions]\nceiling = "strict"\n')
    (tmp_path / "settings.toml").symlink_to(tmp_path / "real.toml")
    assert load_settings(tmp_path / "settings.toml").permissions.ceiling == "strict"
