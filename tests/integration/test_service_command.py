"""`lodger service` as a person types it, with a service manager of the test's own in PATH."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

UNITS = ("lodger-hub.service", "lodger-daemon.service")
SYSTEMCTL = """#!/bin/sh
echo "$@" >> "$HOME/said"
case "$*" in
  *--version*) echo "systemd 252 (252.1)";;
  *"property=Version"*) echo 252;;
  *ActiveState*) cat "$HOME/state";;
  *"start lodger-daemon"*) [ -e "$HOME/refuse" ] && { echo "Job failed." >&2; exit 1; };;
esac
exit 0
"""
ACTIVE = "ActiveState=active\nUnitFileState=enabled\nStatusText=Hub: connected\nNRestarts=2\n"


class Machine:
    """A HOME, and what its service manager is."""

    def __init__(self, base: Path, *, manager: bool) -> None:
        self.home, self.bin = base / "home", base / "bin"
        self.home.mkdir()
        self.bin.mkdir()
        if manager:
            self.put("systemctl", SYSTEMCTL)
            self.put("loginctl", '#!/bin/sh\ncat "$HOME/linger"\n')
        (self.home / "state").write_text(ACTIVE)
        (self.home / "linger").write_text("yes\n")

    def put(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)
        for tool in ("cat", "sh"):
            if not (self.bin / tool).exists():
                (self.bin / tool).symlink_to(f"/bin/{tool}")

    @property
    def units(self) -> Path:
        return self.home / ".config" / "systemd" / "user"

    def said(self) -> list[str]:
        """What systemctl was told since the last time, without questions."""
        file = self.home / "said"
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return [line.removeprefix("--user --no-pager ") for line in lines if "show" not in line and "--ver" not in line]

    def lodger(self, *arguments: str, code: int = 0, **environment: str) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(
            [sys.executable, "-m", "lodger_cli.main", "service", *arguments],
            env={"PATH": str(self.bin), "HOME": str(self.home), "LANG": "C.UTF-8", **environment},
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == code, done
        return done

    def json(self, *arguments: str, code: int = 0, **environment: str) -> dict[str, Any]:
        return dict(json.loads(self.lodger(*arguments, "--json", code=code, **environment).stdout))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path, manager=True)


def test_install_starts_the_hub_first_and_a_second_time_changes_nothing(machine: Machine) -> None:
    report = machine.json("install")
    assert report["files"] == [{"path": str(machine.units / name), "done": "written"} for name in UNITS]
    assert report["lingering"] is True
    assert report["problems"] == report["notes"] == []
    part = {"state": "active", "enabled": "enabled", "status": "Hub: connected", "restarts": 2}
    assert report["parts"] == [{"part": "hub", **part}, {"part": "daemon", **part}]
    assert machine.said() == [word for name in UNITS for word in ("daemon-reload", f"enable {name}", f"restart {name}")]
    before = {name: (machine.units / name).stat().st_mtime_ns for name in UNITS}
    assert [file["done"] for file in machine.json("install")["files"]] == ["unchanged"] * 2
    assert [word for word in machine.said() if "start" in word] == [f"start {name}" for name in UNITS]
    assert before == {name: (machine.units / name).stat().st_mtime_ns for name in UNITS}
    changed = machine.json("install", "--public-name", "lodger.example")
    assert [file["done"] for file in changed["files"]] == ["replaced", "unchanged"]
    assert [word for word in machine.said() if "start" in word] == [f"restart {UNITS[0]}", f"start {UNITS[1]}"]


def test_a_file_of_somebody_else_is_never_overwritten(machine: Machine) -> None:
    machine.units.mkdir(parents=True)
    stranger = machine.units / UNITS[1]
    stranger.write_text("[Service]\nExecStart=/mine\n")
    refused = machine.lodger("install", code=1)
    assert f"{stranger} is not written by lodger service install" in refused.stderr
    assert not (machine.units / UNITS[0]).exists(), "all or nothing"
    assert machine.said() == []
    assert "left alone" in machine.lodger("uninstall", code=1).stderr
    assert stranger.read_text() == "[Service]\nExecStart=/mine\n"
    stranger.unlink()
    machine.lodger("install")
    stranger.write_text(stranger.read_text().replace("WatchdogSec=30", "WatchdogSec=300"))
    assert "systemctl edit" in machine.lodger("install", code=1).stderr
    machine.lodger("uninstall", code=1)
    assert "WatchdogSec=300" in stranger.read_text()


def test_without_systemctl_the_files_are_in_place_and_the_command_is_said(tmp_path: Path) -> None:
    machine = Machine(tmp_path, manager=False)
    done = machine.lodger("install")
    assert all((machine.units / name).exists() for name in UNITS)
    assert "systemctl is not on this machine" in done.stderr
    assert f"systemctl --user enable --now {' '.join(UNITS)}" in done.stderr
    assert "What runs cannot be said" in machine.lodger("status").stderr
    machine.lodger("restart", code=3)
    machine.lodger("uninstall")
    assert list(machine.units.iterdir()) == []


def test_a_user_who_does_not_linger_is_told_the_command(machine: Machine) -> None:
    (machine.home / "linger").write_text("no\n")
    done = machine.lodger("install")
    assert f"Type once: {'' if os.geteuid() == 0 else 'sudo '}loginctl enable-linger" in done.stderr
    assert machine.json("status")["lingering"] is False


def test_a_part_that_does_not_start_fails_the_command(machine: Machine) -> None:
    (machine.home / "refuse").touch()
    assert "the daemon did not start: Job failed." in machine.lodger("install", code=1).stderr
    (machine.home / "state").write_text("ActiveState=failed\nUnitFileState=enabled\nStatusText=\nNRestarts=9\n")
    report = machine.json("status", code=1)
    assert report["problems"] == ["the hub does not run", "the daemon does not run"]


def test_uninstall_stops_the_daemon_first_and_leaves_nothing(machine: Machine) -> None:
    assert "no service is installed here" in machine.lodger("status", code=3).stderr
    machine.lodger("install")
    machine.said()
    assert [file["done"] for file in machine.json("uninstall", "--dry-run")["files"]] == ["would go"] * 2
    assert machine.said() == []
    machine.lodger("restart")
    assert machine.said() == [f"restart {name}" for name in UNITS]
    machine.lodger("uninstall")
    assert machine.said() == [f"disable --now {UNITS[1]}", f"disable --now {UNITS[0]}", "daemon-reload"]
    assert list(machine.units.iterdir()) == []
    assert "No service is installed here" in machine.lodger("uninstall").stderr


def test_a_key_for_the_daemon_must_be_there(machine: Machine, tmp_path: Path) -> None:
    key = tmp_path / "openai.key"
    refused = machine.lodger("install", "--credential", f"openai:{key}", code=2)
    assert f"there is no file {key}" in refused.stderr
    assert not machine.units.exists()
    key.write_text("sk-secret\n")
    shown = machine.json("install", "--credential", f"openai:{key}", "--dry-run")
    assert f"LoadCredential=openai:{key}\n" in shown["files"][1]["text"]
    assert "sk-secret" not in json.dumps(shown)


def test_a_dry_run_shows_every_file_and_every_step_and_takes_none(machine: Machine) -> None:
    hub, daemon = (machine.units / name for name in UNITS)
    reload, enable = "systemctl --user daemon-reload", f"systemctl --user enable --now {' '.join(UNITS)}"
    shown = machine.json("install", "--dry-run")
    assert shown["steps"] == [f"write {hub}", f"write {daemon}", reload, enable]
    told = machine.lodger("install", "--dry-run").stdout
    assert [line for line in shown["steps"] if f"#   {line}\n" not in told] == []
    assert [file["path"] for file in shown["files"] if file["text"] not in told] == []
    assert (machine.said(), machine.units.exists()) == ([], False)
    machine.lodger("install")
    machine.said()
    before = {path: path.read_text() for path in machine.units.iterdir()}
    again = machine.json("install", "--dry-run", "--port", "8400")["steps"]
    restarts = [f"restart the {part}, as its file is another" for part in ("hub", "daemon")]
    assert again == [f"replace {hub}", f"replace {daemon}", reload, enable, *restarts]
    same = [f"leave {hub}: it is the same", f"leave {daemon}: it is the same", reload, enable]
    assert machine.json("install", "--dry-run")["steps"] == same
    hub.write_text("[Unit]\n")
    refused = f"do nothing: {hub} is not written by lodger service install. Move it away first"
    assert machine.json("install", "--dry-run")["steps"] == [refused]
    hub.write_text(before[hub])
    assert {path: path.read_text() for path in machine.units.iterdir()} == before
    assert machine.said() == []


def test_where_lodger_keeps_things_comes_along(machine: Machine, tmp_path: Path) -> None:
    shown = machine.json("install", "--dry-run", LODGER_HOME=str(tmp_path / "elsewhere"))
    assert not machine.units.exists()
    assert f"Environment=LODGER_HOME={tmp_path}/elsewhere" in shown["files"][1]["text"]
    assert f"{tmp_path}/elsewhere/state/hub/machine.token" in shown["files"][1]["text"]


def test_settings_that_name_a_hub_elsewhere_install_the_daemon_alone(machine: Machine) -> None:
    settings = machine.home / ".config" / "lodger" / "settings.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text('[hub]\nurl = "https://hub.example"\ntoken_file = "/token"\n')
    assert [Path(file["path"]).name for file in machine.json("install")["files"]] == [UNITS[1]]


def test_what_runs_as_lodger_up_is_not_disturbed(machine: Machine, tmp_path: Path) -> None:
    import fcntl

    lock = machine.home / ".local" / "state" / "lodger" / "up.lock"
    lock.parent.mkdir(parents=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        hindrance = "start nothing: `lodger up` runs here. End it with Ctrl-C first"
        assert machine.json("install", "--dry-run")["steps"][-1] == hindrance
        assert "`lodger up` runs here" in machine.lodger("install").stderr
        assert machine.said() == []


def test_who_has_no_systemd_that_answers_is_told_that_and_its_words(machine: Machine) -> None:
    machine.put("systemctl", '#!/bin/sh\necho "Failed to connect to bus: No medium found" >&2\nexit 1\n')
    last = machine.json("install", "--dry-run")["steps"][-1]
    assert last == "start nothing: systemd does not answer here (Failed to connect to bus: No medium found)"
