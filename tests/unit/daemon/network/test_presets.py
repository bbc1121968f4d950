"""The presets with programs that print what the real ones print, and with the real pip and git of this machine."""

import os
import sys
from pathlib import Path

import pytest

from lodger_daemon.network.presets import PersonsTools
from lodger_sandbox.egress.core.presets import Preset

INDEX = "http://127.0.0.1:3141/root/pypi"


def program(folder: Path, name: str, body: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{body}\n")
    (folder / name).chmod(0o755)


def lets_out(tools: PersonsTools, *wanted: Preset) -> list[str]:
    return [str(entry) for entry in tools.entries(wanted)]


def real(tmp_path: Path, **more: str) -> PersonsTools:
    python = str(Path(sys.executable).parent)
    return PersonsTools(tmp_path, {"PATH": f"{python}:{os.environ['PATH']}", **more})


def test_the_real_pip_says_what_it_is_configured_to_use(tmp_path: Path) -> None:
    (tmp_path / "pip.conf").write_text(f"[global]\nindex-url = {INDEX}\n")
    tools = real(tmp_path, PIP_CONFIG_FILE=str(tmp_path / "pip.conf"))
    assert "127.0.0.1:3141" in lets_out(tools, Preset.PIP)


@pytest.mark.needs("git")
def test_the_real_git_says_which_hosts_it_knows_and_no_workspace_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".gitconfig").write_text('[credential "https://git.test"]\n helper = store\n')
    workspace = tmp_path / "work" / ".git"
    workspace.mkdir(parents=True)
    (workspace / "config").write_text('[credential "https://evil.test"]\n helper = store\n')
    monkeypatch.chdir(tmp_path / "work")
    found = lets_out(real(tmp_path), Preset.GIT)
    assert found == ["git.test:443"]


def test_npm_and_cargo(tmp_path: Path) -> None:
    bin_folder = tmp_path / "bin"
    program(bin_folder, "npm", """echo '{"registry": "https://n.test/", "ca": null}'; pwd >> "$HOME/where" """)
    program(bin_folder, "cargo", "# sparse+https://c.test/ stands in the program")
    used = tmp_path / ".cargo" / "registry" / "index" / "c.test-1"
    used.mkdir(parents=True)
    (used / "config.json").write_text('{"dl": "https://files.test/crates"}')
    tools = PersonsTools(tmp_path, {"PATH": f"{bin_folder}:/usr/bin:/bin"})
    assert lets_out(tools, Preset.NPM, Preset.CARGO) == ["n.test:443", "files.test:443", "c.test:443"]
    assert (tmp_path / "where").read_text() == "/\n"


def test_a_tool_that_is_not_there_or_broken_lets_nothing_out_and_hinders_no_other(tmp_path: Path) -> None:
    bin_folder = tmp_path / "bin"
    program(bin_folder, "npm", "echo not json")
    program(bin_folder, "git", "exit 3")
    program(bin_folder, "cargo", "# sparse+https://c.test/")
    tools = PersonsTools(tmp_path, {"PATH": str(bin_folder)})
    assert lets_out(tools, *Preset) == ["c.test:443"]
