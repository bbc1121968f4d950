"""Incidents of ATTACKS.md 4.3 and 4.4 that need the runner, the command line or the machine, with real parts."""

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from lodger_cli.terminal import Exit
from lodger_sandbox.contract import BoxRequest, Mount, SandboxUnavailable
from lodger_sandbox.foreground import policy_for_command, run_with_policy
from lodger_sandbox.host import find_bwrap
from lodger_tools.box.contract import BoxCall, BoxKey, BoxOutcome, EditFile, Operation, RunCommand, WriteFile
from lodger_tools.box.manager import BoxManager
from support.hub_rig import until
from support.plain_runner import PlainStarter
from support.real_boxes import RealRequests, box_user_for_tests
from support.sandbox_users import own, user_of_boxes, visible_folder

pytestmark = pytest.mark.needs("bwrap")
covers_bwrap = pytest.mark.skipif(os.geteuid() != 0, reason="covers the machine's bubblewrap with another file")
LODGER = "from lodger_cli.main import main; main()"


class Room:
    """A workspace with its boxes, and a folder beside it that the boxes' user may write."""

    def __init__(self, base: Path, state: Path) -> None:
        self.workspace, self.outside = base / "workspace", base / "outside"
        for folder in (self.workspace, self.outside):
            folder.mkdir()
        (self.outside / "rc").write_text("old\n")
        own(base, box_user_for_tests())
        self.requests = RealRequests(state, base / "no-home")
        self.manager = BoxManager(state / "boxes", self.requests)
        self.key = BoxKey("agent-1", str(self.workspace))
        self.count = 0

    async def run(self, operation: Operation, cwd: str | None = None) -> BoxOutcome:
        self.count += 1
        call = BoxCall(f"incident/{self.count}", operation, cwd or str(self.workspace))
        return await self.manager.run(self.key, call)

    def pid(self) -> int:
        return next(box.host_pid for box in self.manager.statuses())


@pytest.fixture
async def room(tmp_path: Path) -> AsyncIterator[Room]:
    with visible_folder() as base:
        made = Room(base, tmp_path)
        yield made
        for box in made.manager.statuses():
            await made.manager.end(box.key)
        await made.manager.aclose()


def writable_mounts(pid: int) -> set[str]:
    rows = [line.split() for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines()]
    return {row[4] for row in rows if "rw" in row[5].split(",")}


async def test_f3_a_file_tool_writes_through_no_link_that_leads_out(room: Room) -> None:
    await room.run(RunCommand(f"ln -s {room.outside}/rc x && ln -s {room.outside} folder"))
    for operation in (
        WriteFile(f"{room.workspace}/x", "new"),
        EditFile(f"{room.workspace}/x", "old", "new"),
        WriteFile(f"{room.workspace}/folder/rc", "new"),
        WriteFile(f"{room.workspace}/folder/made", "new"),
    ):
        assert (await room.run(operation)).status == "error"
    assert (room.outside / "rc").read_text() == "old\n"
    assert sorted(path.name for path in room.outside.iterdir()) == ["rc"]


async def test_f3_control_where_the_box_may_write_the_link_is_followed(room: Room) -> None:
    room.requests.mounts = (Mount(str(room.outside), str(room.outside), writable=True),)
    await room.run(RunCommand(f"ln -s {room.outside}/rc x"))
    assert (await room.run(WriteFile(f"{room.workspace}/x", "new"))).status == "success"
    assert (room.outside / "rc").read_text() == "new"


async def test_f6_no_tool_adds_a_place_that_can_be_written(room: Room) -> None:
    await room.run(RunCommand("true"))
    before = writable_mounts(room.pid())
    assert str(room.workspace) in before
    for operation in (
        RunCommand("echo x > made"),
        WriteFile(f"{room.outside}/made", "x"),
        EditFile(f"{room.outside}/rc", "old", "new"),
    ):
        for cwd in ("/", str(room.outside)):
            assert (await room.run(operation, cwd)).status == "error"
            assert writable_mounts(room.pid()) == before
    assert (room.outside / "rc").read_text() == "old\n"


async def test_f6_control_a_place_that_the_daemon_adds_is_written(room: Room) -> None:
    """By the same operations, and it is seen among the mounts."""
    room.requests.mounts = (Mount(str(room.outside), str(room.outside), writable=True),)
    await room.run(RunCommand("true"))
    assert {str(room.workspace), str(room.outside)} <= writable_mounts(room.pid())
    for operation in (
        RunCommand("echo x > made"),
        WriteFile(f"{room.outside}/also", "x"),
        EditFile(f"{room.outside}/rc", "old", "new"),
    ):
        assert (await room.run(operation, str(room.outside))).status == "success"
    assert (room.outside / "rc").read_text() == "new\n"


@pytest.mark.parametrize("name", ["*", "st*te", "[ab]", "a b", "a'b\"", "$HOME", "-x", "ünïcode", "new\nline"])
def test_f5_a_masked_name_is_taken_as_it_is_spelled(name: str) -> None:
    """There are no patterns: what looks like one hides the folder of that very name, and no other."""
    with visible_folder() as base:
        for folder in ("workspace", name, "state", "a", "home"):
            (base / folder).mkdir()
            (base / folder / "inside").write_text("canary")
        own(base, user_of_boxes())
        request = BoxRequest(
            workspace=str(base / "workspace"),
            profile="agent",
            user=user_of_boxes(),
            home=str(base / "home"),
            masks=(str(base / name),),
            environment={"PATH": "/usr/bin:/bin", "PLACE": str(base / name), "BASE": str(base)},
        )
        command = 'cat -- "$PLACE/inside"; cat -- "$BASE/state/inside" "$BASE/a/inside"'
        for masks, seen in ((request.masks, 2), ((), 3)):
            with tempfile.TemporaryFile() as output:
                one = replace(request, masks=masks)
                policy = policy_for_command(one, ("sh", "-c", command))
                errors = subprocess.DEVNULL
                run_with_policy(policy, one, stdin=errors, stdout=output, stderr=errors, limit_s=10)
                output.seek(0)
                assert output.read().count(b"canary") == seen


def lodger(folder: Path, home: Path, before: str = "") -> subprocess.CompletedProcess[str]:
    """`lodger sandbox run` in a mount namespace of its own, where `before` was done."""
    words = (sys.executable, "-c", LODGER, "sandbox", "run", "--", "touch", "made")
    return subprocess.run(
        ("unshare", "-m", "--propagation", "slave", "sh", "-c", f'{before}exec "$@"', "sh", *words),
        cwd=folder,
        env={**os.environ, "LODGER_HOME": str(home), "PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


@covers_bwrap
def test_f9_without_bubblewrap_nothing_runs_and_it_is_said(room: Room, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    done = lodger(room.workspace, tmp_path, f"mount --bind {empty} {find_bwrap()} && ")
    assert done.returncode == Exit.NO_BOX
    assert "bwrap" in done.stderr
    assert not (room.workspace / "made").exists()
    with pytest.raises(SandboxUnavailable, match="Install it"):
        find_bwrap(("/nowhere/bwrap",))


@covers_bwrap
def test_f9_control_with_it_the_command_runs(room: Room, tmp_path: Path) -> None:
    assert lodger(room.workspace, tmp_path).returncode == 0
    assert (room.workspace / "made").exists()


@covers_bwrap
def test_f10_a_bwrap_of_the_workspace_is_never_run(room: Room, tmp_path: Path) -> None:
    planted = room.workspace / "bwrap"
    planted.write_text(f"#!/bin/sh\ntouch {room.outside}/planted-ran\nexit 1\n")
    planted.chmod(0o755)
    assert lodger(room.workspace, tmp_path).returncode == 0
    assert (room.workspace / "made").exists()
    assert not (room.outside / "planted-ran").exists()
    own(room.workspace, box_user_for_tests())
    with pytest.raises(SandboxUnavailable, match="must belong to root"):
        find_bwrap((str(planted),))


def test_f10_control_by_path_it_would_be(room: Room) -> None:
    planted = room.workspace / "bwrap"
    planted.write_text(f"#!/bin/sh\ntouch {room.outside}/planted-ran\n")
    planted.chmod(0o755)
    subprocess.run(("env", "bwrap"), env={"PATH": f"{room.workspace}:/usr/bin:/bin"}, check=True)
    assert (room.outside / "planted-ran").exists()


def mount_namespaces(root: int) -> dict[int, str]:
    """Of a process and everything that came from it, but for a runner: nobody but root may look at that."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            rest = (entry / "stat").read_text().rpartition(")")[2].split()
            parents[int(entry.name)] = int(rest[1])
        except OSError:
            continue
    found, grown = {root}, True
    while grown:
        below = {pid for pid, parent in parents.items() if parent in found} - found
        found |= below
        grown = bool(below)
    namespaces = {}
    for pid in found:
        with contextlib.suppress(PermissionError):
            namespaces[pid] = str(Path(f"/proc/{pid}/ns/mnt").readlink())
    return namespaces


async def namespaces_of_a_tool(room: Room) -> set[str]:
    """However its processes were started: in the foreground, through a shell, left in the background, in a session of
    its own."""
    await room.run(RunCommand("mkfifo gate; setsid sh -c 'read x < gate' & (read y < gate) & disown -a"))
    running = asyncio.create_task(room.run(RunCommand("sh -c 'read z < gate; :'; :")))
    await until(lambda: len(mount_namespaces(room.pid())) >= 4, "all of them run")
    namespaces = set(mount_namespaces(room.pid()).values())
    await room.manager.stop_all(room.key)
    await running
    return namespaces


async def test_f11_every_process_of_a_tool_is_in_the_box(room: Room) -> None:
    namespaces = await namespaces_of_a_tool(room)
    assert len(namespaces) == 1
    assert namespaces != {str(Path("/proc/self/ns/mnt").readlink())}


async def test_f11_control_a_second_way_to_start_programs_is_seen(room: Room, tmp_path: Path) -> None:
    starter = PlainStarter()
    room.manager = BoxManager(tmp_path / "unconfined", room.requests, start_detached=starter)
    try:
        assert await namespaces_of_a_tool(room) == {str(Path("/proc/self/ns/mnt").readlink())}
    finally:
        starter.end_all()


def test_n6_no_file_of_a_folder_sets_an_address(tmp_path: Path) -> None:
    """Where models and hub are is read from the person's own settings alone."""
    hostile = tmp_path / "folder"
    (hostile / ".lodger").mkdir(parents=True)
    evil = "https://evil.example/v1"
    settings = f'[providers.openai]\nbase_url = "{evil}"\n[hub]\nurl = "{evil}"\n'
    for name in ("settings.toml", "lodger.toml", ".lodger/settings.toml", "pyproject.toml"):
        (hostile / name).write_text(settings)
    (hostile / ".env").write_text(f"LODGER_HUB_URL={evil}\nOPENAI_BASE_URL={evil}\nLODGER_HOME={hostile}\n")
    show = (
        "import os; from lodger_daemon.paths import find_paths\n"
        "from lodger_daemon.service.settings import load_settings\n"
        "print(load_settings(find_paths(os.environ).settings_file).model_dump_json())"
    )

    def shown(home: Path) -> str:
        done = subprocess.run(
            (sys.executable, "-c", show),
            cwd=hostile,
            env={"LODGER_HOME": str(home), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    assert "evil.example" not in shown(tmp_path / "home")
    own_settings = tmp_path / "own" / "config" / "settings.toml"
    own_settings.parent.mkdir(parents=True)
    own_settings.write_text(settings)
    assert "evil.example" in shown(tmp_path / "own")
