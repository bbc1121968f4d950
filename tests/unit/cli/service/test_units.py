"""Unit files and property lists by the judgement of systemd and plistlib; the examples are true."""

import os
import plistlib
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from lodger_cli.units import launchd, systemd
from lodger_cli.units.marker import Holder, holder, marked
from lodger_cli.units.plan import (
    Credential,
    Installation,
    Part,
    Scope,
    ServiceFile,
    UnfitCredential,
    UnfitPath,
)
from support.needed_programs import needed

ROOT = Path(__file__).resolve().parents[4]
BOTH = (Part.HUB, Part.DAEMON)
ANALYZE = "systemd-analyze"


def example(scope: Scope, *, parts: tuple[Part, ...] = BOTH, command: str = "/opt/lodger/bin/lodger") -> Installation:
    """What the files in systemd/ and launchd/ show."""
    state = Path("/var/lib/lodger") if scope is Scope.SYSTEM else Path("/home/ada/.local/state/lodger")
    user = "lodger" if scope is Scope.SYSTEM else ""
    return Installation(scope, parts, (command,), state, user=user, home=Path("/home/ada"))


def installed(tmp_path: Path) -> str:
    """A command that is there: `verify` looks for it."""
    command = tmp_path / "bin dir" / "lodger"
    command.parent.mkdir()
    command.write_text("#!/bin/sh\n")
    command.chmod(0o755)
    return str(command)


def analyze(*arguments: str, runtime: Path) -> "subprocess.CompletedProcess[str]":
    environment = {"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(runtime), "HOME": str(runtime), "LC_ALL": "C.UTF-8"}
    return subprocess.run([needed(ANALYZE), *arguments], capture_output=True, text=True, env=environment, timeout=60)


@pytest.mark.needs(ANALYZE)
@pytest.mark.parametrize("scope", list(Scope))
@pytest.mark.parametrize("parts", [BOTH, (Part.DAEMON,), (Part.HUB,)])
def test_systemd_has_nothing_to_say_about_a_unit(scope: Scope, parts: tuple[Part, ...], tmp_path: Path) -> None:
    installation = example(scope, parts=parts, command=installed(tmp_path))
    units = systemd.render(installation, tmp_path, systemd.STEPS_SINCE - 1)
    for unit in units:
        unit.path.write_text(unit.text)
    flag = "--user" if scope is Scope.USER else "--system"
    for unit in units:
        said = analyze("verify", flag, "--man=no", str(unit.path), runtime=tmp_path)
        assert (said.returncode, said.stderr) == (0, "")


@pytest.mark.needs(ANALYZE)
def test_systemd_does_complain_about_a_key_it_does_not_know(tmp_path: Path) -> None:
    """So that silence above means something."""
    [_, daemon] = systemd.render(example(Scope.SYSTEM, command=installed(tmp_path)), tmp_path, 252)
    daemon.path.write_text(daemon.text.replace("KillMode=", "KillMood="))
    assert "KillMood" in analyze("verify", "--system", "--man=no", str(daemon.path), runtime=tmp_path).stderr


@pytest.mark.needs(ANALYZE)
@pytest.mark.parametrize(("part", "most"), [(Part.HUB, 2.0), (Part.DAEMON, 5.0)])
def test_the_exposure_stays_what_the_docs_say(part: Part, most: float, tmp_path: Path) -> None:
    [unit] = systemd.render(example(Scope.SYSTEM, parts=(part,), command=installed(tmp_path)), tmp_path, 252)
    unit.path.write_text(unit.text)
    said = analyze("security", "--offline=true", "--no-pager", str(unit.path), runtime=tmp_path)
    [line] = [line for line in said.stdout.splitlines() if "Overall exposure level" in line]
    assert float(line.split(":")[1].split()[0]) <= most, line


@pytest.mark.parametrize("scope", list(Scope))
def test_what_the_daemons_unit_promises(scope: Scope) -> None:
    [_, daemon] = systemd.render(example(scope), Path("/units"), 252)
    lines = daemon.text.splitlines()
    for promise in (
        "Type=notify",
        "NotifyAccess=main",
        "KillMode=process",
        "OOMPolicy=continue",
        "WatchdogSec=30",
        "Restart=on-failure",
        "TimeoutStopSec=30",
        "NoNewPrivileges=yes",
        "Wants=lodger-hub.service",
        "StartLimitIntervalSec=0",
    ):
        assert promise in lines
    state = "/var/lib/lodger" if scope is Scope.SYSTEM else "/home/ada/.local/state/lodger"
    assert (
        "ExecStart=/opt/lodger/bin/lodger daemon --hub http://127.0.0.1:8377 "
        f"--hub-token-file {state}/hub/machine.token"
    ) in lines
    # Each of these was tried under systemd 252: with it no box can be started.
    keys = {line.split("=")[0] for line in lines if not line.startswith("#")}
    assert not keys & {"RestrictNamespaces", "SystemCallFilter", "ProtectKernelTunables", "ProcSubset"}


def test_a_daemon_alone_dials_what_the_settings_name() -> None:
    [daemon] = systemd.render(example(Scope.USER, parts=(Part.DAEMON,)), Path("/units"), 252)
    assert "ExecStart=/opt/lodger/bin/lodger daemon\n" in daemon.text
    assert "Wants=" not in daemon.text


@pytest.mark.needs(ANALYZE)
@pytest.mark.parametrize("scope", list(Scope))
def test_keys_are_handed_to_the_daemon_and_to_nobody_else(scope: Scope, tmp_path: Path) -> None:
    key = tmp_path / "50%.key"
    key.write_text("key")
    keys = (Credential("openai", key), Credential("my-own", key))
    installation = replace(example(scope, command=installed(tmp_path)), credentials=keys)
    hub, daemon = systemd.render(installation, tmp_path, 252)
    assert f"LoadCredential=openai:{tmp_path}/50%%.key\nLoadCredential=my-own:{tmp_path}/50%%.key\n" in daemon.text
    assert "LoadCredential" not in hub.text
    for unit in (hub, daemon):
        unit.path.write_text(unit.text)
    flag = "--user" if scope is Scope.USER else "--system"
    said = analyze("verify", flag, "--man=no", str(daemon.path), runtime=tmp_path)
    assert (said.returncode, said.stderr) == (0, "")


@pytest.mark.parametrize(
    ("provider", "file"),
    [("openai", "openai.key"), ("openai", "/a b"), ("openai", "/a:b"), ("", "/a"), ("../x", "/a"), ("Open", "/a"),
     ("a\nUser", "/a")],
)  # fmt: skip
def test_a_key_that_a_unit_cannot_name_is_refused(provider: str, file: str) -> None:
    with pytest.raises(UnfitCredential):
        Credential(provider, Path(file))


@pytest.mark.parametrize("file", ["/a\nExecStartPre=/bin/evil", "/a'b", "/a$b"])
def test_a_keys_file_cannot_bring_lines_of_its_own(file: str) -> None:
    with pytest.raises(UnfitPath):
        Installation(Scope.USER, BOTH, ("/lodger",), Path("/s"), credentials=(Credential("openai", Path(file)),))


def test_newer_systemd_waits_longer_after_each_failure() -> None:
    [hub, _] = systemd.render(example(Scope.USER), Path("/units"), systemd.STEPS_SINCE)
    assert "RestartSec=2\nRestartSteps=6\nRestartMaxDelaySec=60\n" in hub.text


def test_words_of_a_command_survive_the_unit_file() -> None:
    installation = Installation(
        Scope.USER,
        (Part.DAEMON,),
        ("/home/ada love/50%/lodger",),
        Path("/state"),
        environment=(("LODGER_HOME", "/home/ada love/100%"),),
    )
    [daemon] = systemd.render(installation, Path("/units"), 252)
    assert 'ExecStart="/home/ada love/50%%/lodger" daemon\n' in daemon.text
    assert 'Environment="LODGER_HOME=/home/ada love/100%%"\n' in daemon.text


@pytest.mark.parametrize("bad", ["/a\nExecStartPre=/bin/evil", "/a'b", '/a"b', "/a$b", "/a\\b", "/a\x7f"])
def test_what_a_unit_file_cannot_carry_is_refused(bad: str) -> None:
    with pytest.raises(UnfitPath):
        Installation(Scope.USER, BOTH, (bad,), Path("/state"))
    with pytest.raises(UnfitPath):
        Installation(Scope.USER, BOTH, ("/lodger",), Path("/state"), environment=(("LODGER_HOME", bad),))


def test_property_lists_parse_and_hold_the_right_keys() -> None:
    files = launchd.render(example(Scope.USER), Path("/agents"))
    assert [file.path.name for file in files] == ["lodger.hub.plist", "lodger.daemon.plist"]
    job = plistlib.loads(files[1].text.encode())
    state = "/home/ada/.local/state/lodger"
    arguments = [
        "/opt/lodger/bin/lodger", "daemon", "--hub", "http://127.0.0.1:8377",
        "--hub-token-file", f"{state}/hub/machine.token", "--log-file", f"{state}/logs/daemon.log",
    ]  # fmt: skip
    assert job == {
        "Label": "lodger.daemon",
        "ProgramArguments": arguments,
        "StandardErrorPath": f"{state}/logs/daemon.start.log",
        "StandardOutPath": "/dev/null",
        "WorkingDirectory": "/home/ada",
        "EnvironmentVariables": {"PATH": "/opt/homebrew/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"},
        "RunAtLoad": True,
        "KeepAlive": True,
        "ThrottleInterval": 10,
        "ExitTimeOut": 30,
        "AbandonProcessGroup": True,
        "ProcessType": "Interactive",
    }


@pytest.mark.parametrize("scope", [Scope.USER, Scope.SYSTEM])
@pytest.mark.parametrize(("version", "delegated"), [(252, False), (254, True)])
def test_groups_are_delegated_where_systemd_can_put_the_daemon_beside_them(
    scope: Scope, version: int, delegated: bool
) -> None:
    [unit] = [file.text for file in systemd.render(example(scope), ROOT, version) if file.part is Part.DAEMON]
    assert ("\nDelegate=cpu memory pids\nDelegateSubgroup=daemon\n" in unit) is delegated
    # It would make the groups read-only.
    assert "ProtectControlGroups" not in unit


def shown() -> list[tuple[Path, ServiceFile]]:
    """The examples of the tree."""
    files: list[tuple[Path, ServiceFile]] = []
    for scope in Scope:
        folder = ROOT / "systemd" / scope.value
        files += [(folder / file.path.name, file) for file in systemd.render(example(scope), folder, 252)]
    folder = ROOT / "launchd"
    files += [(folder / file.path.name, file) for file in launchd.render(example(Scope.USER), folder)]
    return files


@pytest.mark.parametrize("path", [path for path, _ in shown()], ids=lambda path: str(path.relative_to(ROOT)))
def test_the_examples_in_the_tree_are_what_would_be_written(path: Path) -> None:
    [file] = [file for at, file in shown() if at == path]
    if os.environ.get("LODGER_TEST_REWRITE"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(file.text)
    assert path.read_text() == file.text


def test_whose_a_file_is(tmp_path: Path) -> None:
    path = tmp_path / "unit"
    assert holder(path) is Holder.NOBODY
    path.write_text("[Unit]\n")
    assert holder(path) is Holder.STRANGER
    for xml in (False, True):
        path.write_text(marked("some text\n", xml=xml))
        assert holder(path) is Holder.OURS
        path.write_text(path.read_text().replace("some", "other"))
        assert holder(path) is Holder.CHANGED
        path.write_text(marked("some text\n", xml=xml) + "Environment=MORE=1\n")
        assert holder(path) is Holder.STRANGER
