"""A mount that someone outside took away, in real boxes."""

import asyncio
import contextlib
import os
import subprocess
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from lodger_daemon.randomness import SystemRng
from lodger_daemon.workspace_guard.git_guard import GitGuard
from lodger_daemon.workspace_guard.guarded_boxes import GuardedBoxes
from lodger_daemon.workspace_guard.mount_watch import MountWatch
from lodger_sandbox.mounts import lost_mounts, mount_points
from lodger_tools.box.contract import BoxCall, Boxes, BoxKey, BoxOutcome, RunCommand
from lodger_tools.box.manager import BoxManager
from support.programs import until
from support.real_boxes import RealRequests, box_user_for_tests, workspace_for_tests
from support.sandbox_users import own, visible_folder

pytestmark = pytest.mark.needs("bwrap")


class Silent:
    def note(self, box: BoxKey, decision: str, what: str) -> None:
        pass


class Rig:
    def __init__(self, state: Path, workspace: Path) -> None:
        self.workspace = workspace
        self.manager = BoxManager(state / "boxes", RealRequests(state, Path.home()))
        self.watched = GuardedBoxes(self.manager, GitGuard(self.manager, state / "git", SystemRng(), Silent()))
        self.key = BoxKey("agent-1", str(workspace))
        self.count = 0

    async def run(self, boxes: Boxes, command: str) -> BoxOutcome:
        self.count += 1
        return await boxes.run(self.key, BoxCall(f"mounts/{self.count}", RunCommand(command), str(self.workspace)))

    def pid(self) -> int:
        return next(box.host_pid for box in self.manager.statuses() if box.key == self.key)

    def replace(self, name: str) -> None:
        """As git and editors do it outside."""
        fresh = self.workspace / ".git/fresh"
        fresh.write_text(".\n")
        fresh.replace(self.workspace / ".git" / name)
        own(self.workspace, box_user_for_tests())


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    with workspace_for_tests() as workspace:
        subprocess.run(("git", "init", "-q", str(workspace)), check=True)  # noqa: ASYNC221 - before anything runs
        own(workspace, box_user_for_tests())
        made = Rig(tmp_path, workspace)
        yield made
        for box in made.manager.statuses():
            await made.manager.end(box.key)
        await made.manager.aclose()


PLANT = "echo ../evil > .git/commondir"


async def test_a_lost_mount_ends_the_box_before_the_next_call(rig: Rig) -> None:
    assert (await rig.run(rig.watched, PLANT)).exit_code != 0
    before = rig.pid()
    rig.replace("commondir")
    done = await rig.run(rig.watched, PLANT)
    assert done.exit_code != 0
    assert "replaced" in done.text and ".git/commondir" in done.text
    assert rig.pid() != before
    assert (rig.workspace / ".git/commondir").read_text() == ".\n"
    assert "replaced" not in (await rig.run(rig.watched, "true")).text


async def test_control_without_the_watch_it_could_be_written(rig: Rig) -> None:
    assert (await rig.run(rig.manager, PLANT)).exit_code != 0
    rig.replace("commondir")
    assert (await rig.run(rig.manager, PLANT)).exit_code == 0


async def test_what_is_lost_before_the_first_look_is_missed_by_none(rig: Rig) -> None:
    await rig.run(rig.manager, "true")
    rig.replace("config.worktree")
    assert "config.worktree" in (await rig.run(rig.watched, PLANT)).text


class ReplacingWhenAsked:
    """A person whose editor saves while the question stands."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.asked = 0

    async def ask_about_git(self, box: BoxKey, changes: Mapping[str, str]) -> bool | None:
        self.asked += 1
        self.rig.replace("commondir")
        return False


async def test_what_is_lost_while_the_person_is_asked_is_noticed_before_the_call(rig: Rig) -> None:
    await rig.run(rig.watched, "true")
    begun = asyncio.create_task(rig.run(rig.watched, "git config core.hooksPath /tmp; touch begun; sleep 1000"))
    await until((rig.workspace / "begun").exists, "the command")
    begun.cancel()
    await asyncio.wait({begun})
    person = ReplacingWhenAsked(rig)
    rig.watched.let_ask(person)
    done = await rig.run(rig.watched, PLANT)
    assert person.asked == 1
    assert done.exit_code != 0 and ".git/commondir" in done.text
    assert (rig.workspace / ".git/commondir").read_text() == ".\n"


async def test_a_box_that_another_call_started_meanwhile_is_looked_at(rig: Rig) -> None:
    watch = MountWatch(rig.manager)
    look = watch.look(rig.key)
    await rig.run(rig.manager, "true")
    assert await watch.judge(rig.key, look()) == ""
    look = watch.look(rig.key)
    await rig.manager.end(rig.key)
    await rig.run(rig.manager, "true")
    rig.replace("commondir")
    assert ".git/commondir" in await watch.judge(rig.key, look())
    assert await watch.judge(rig.key, look()) == "", "the box has ended with it"


async def test_a_folder_that_was_moved_away_is_lost(rig: Rig) -> None:
    await rig.run(rig.watched, "true")
    (rig.workspace / ".git/hooks").rename(rig.workspace / ".git/old-hooks")
    (rig.workspace / ".git/hooks").mkdir()
    own(rig.workspace, box_user_for_tests())
    done = await rig.run(rig.watched, "echo x > .git/hooks/pre-commit")
    assert done.exit_code != 0
    assert ".git/hooks" in done.text


def test_a_process_that_is_gone_has_no_mounts() -> None:
    assert mount_points(2**22 + 1) is None


def test_a_workspace_without_a_repository_lacks_nothing() -> None:
    assert lost_mounts("/work", {"/", "/work"}, {"/", "/work"}) == ()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts something")
async def test_what_the_machine_itself_unmounts_is_no_loss(rig: Rig) -> None:
    with visible_folder() as folder, contextlib.ExitStack() as mounted:
        inner = folder / "inner"
        inner.mkdir()
        # As on most machines: what is unmounted outside is unmounted in every box too.
        mount("--bind", str(folder), str(folder))
        mounted.callback(unmount, folder)
        mount("--make-shared", str(folder))
        mount("-t", "tmpfs", "-o", "size=64k", "none", str(inner))
        with contextlib.ExitStack() as mounted_inside:
            mounted_inside.callback(unmount, inner)
            await rig.run(rig.watched, "true")
            assert str(inner) in (mount_points(rig.pid()) or ())
        before = rig.pid()
        assert str(inner) not in (mount_points(before) or ())
        assert (await rig.run(rig.watched, "true")).text == ""
        assert rig.pid() == before


def mount(*words: str) -> None:
    subprocess.run(("mount", *words), check=True)


def unmount(folder: Path) -> None:
    subprocess.run(("umount", str(folder)), check=True)
