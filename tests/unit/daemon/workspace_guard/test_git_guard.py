"""The guard around real boxes, with real git inside and outside of them."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from lodger_daemon.randomness import SystemRng
from lodger_daemon.workspace_guard.git_guard import GitGuard
from lodger_daemon.workspace_guard.guarded_boxes import GuardedBoxes
from lodger_tools.box.contract import (
    BoxCall,
    BoxKey,
    BoxOutcome,
    EditFile,
    Operation,
    RunCommand,
    Session,
    StillRuns,
    WriteFile,
)
from lodger_tools.box.manager import BoxManager
from support.hub_rig import until
from support.patience import LIMIT_S
from support.real_boxes import RealRequests, box_user_for_tests, workspace_for_tests
from support.sandbox_users import own

pytestmark = pytest.mark.needs("bwrap", "git")


class Person:
    def __init__(self, answer: bool | None) -> None:
        self.answer = answer
        self.asked: list[dict[str, str]] = []

    async def ask_about_git(self, box: BoxKey, changes: Mapping[str, str]) -> bool | None:
        self.asked.append(dict(changes))
        return self.answer


class Daemon:
    """Boxes and guard of one daemon's life."""

    def __init__(self, state: Path, workspace: Path, count: int = 0) -> None:
        self.workspace = workspace
        self.noted: list[tuple[BoxKey, str, str]] = []
        self.manager = BoxManager(state / "boxes", RealRequests(state, Path.home()))
        self.guard = GitGuard(self.manager, state / "git", SystemRng(), self)
        self.boxes = GuardedBoxes(self.manager, self.guard)
        self.key = BoxKey("agent-1", str(workspace))
        self.count = count

    def note(self, box: BoxKey, decision: str, what: str) -> None:
        self.noted.append((box, decision, what))

    def call(self, operation: Operation) -> BoxCall:
        self.count += 1
        return BoxCall(f"guard/{self.count}", operation, str(self.workspace))

    async def run(self, command: str) -> BoxOutcome:
        return await self.boxes.run(self.key, self.call(RunCommand(command)))

    async def aclose(self) -> None:
        for box in self.boxes.statuses():
            await self.boxes.end(box.key)
        await self.boxes.aclose()

    @property
    def config(self) -> Path:
        return self.workspace / ".git/config"

    def setting(self, name: str) -> str:
        done = subprocess.run(("git", "config", "--file", str(self.config), name), capture_output=True, check=False)
        return done.stdout.decode().strip()


def git(*words: str) -> None:
    """As the person, outside of every box."""
    subprocess.run(("git", *words), check=True)


@pytest.fixture
async def daemon(tmp_path: Path) -> AsyncIterator[Daemon]:
    with workspace_for_tests() as workspace:
        git("init", "-q", "-b", "main", str(workspace))
        own(workspace, box_user_for_tests())
        made = Daemon(tmp_path, workspace)
        yield made
        await made.aclose()


async def test_everyday_settings_stay(daemon: Daemon) -> None:
    done = await daemon.run(
        "git config user.name Ada && git config user.email a@b.example"
        " && git remote add origin https://code.example/a.git && git commit -q --allow-empty -m one"
        " && git branch topic && git config branch.topic.remote origin"
        " && git config branch.topic.merge refs/heads/topic"
    )
    assert (done.exit_code, done.text) == (0, "")
    assert daemon.setting("branch.topic.remote") == "origin"
    assert daemon.setting("user.name") == "Ada"


@pytest.mark.parametrize(
    "command",
    [
        "git config core.fsmonitor ./evil",
        "git config --file .git/config include.path ../evil",
        "printf '[core]\\n\\tsshCommand = evil\\n' >> .git/config",
        "printf '[core' >> .git/config",
        "rm .git/config",
        "rm .git/config; ln -s ../evil .git/config",
        "rm .git/config; mkdir .git/config; touch .git/config/x",
        "rm .git/config; mkfifo .git/config",
        "head -c 300000 /dev/zero | tr '\\0' '#' >> .git/config",
    ],
)
async def test_what_would_run_a_program_is_put_back_and_said(daemon: Daemon, command: str) -> None:
    before = daemon.config.read_bytes()
    done = await daemon.run(command)
    assert "was put back as it was" in done.text
    assert not daemon.config.is_symlink()
    assert daemon.config.read_bytes() == before
    assert [row[:2] for row in daemon.noted] == [(daemon.key, "put_back")]


async def test_files_tools_are_watched_as_commands_are(daemon: Daemon) -> None:
    before = daemon.config.read_bytes()
    await daemon.boxes.run(daemon.key, daemon.call(RunCommand("cat .git/config")))
    for operation in (
        WriteFile(str(daemon.config), "[core]\n\teditor = evil\n"),
        EditFile(str(daemon.config), "bare = false", "bare = false\n\tpager = evil"),
    ):
        done = await daemon.boxes.run(daemon.key, daemon.call(operation))
        assert done.status == "error" or "was put back" in done.text
        assert daemon.config.read_bytes() == before
    assert len(daemon.noted) >= 1


async def test_a_person_may_allow_it(daemon: Daemon) -> None:
    person = Person(True)
    daemon.guard.let_ask(person)
    done = await daemon.run("git config core.hooksPath .husky")
    assert done.text == ""
    assert person.asked == [{"core.hookspath": ".husky"}]
    assert daemon.setting("core.hooksPath") == ".husky"
    await daemon.run("git config user.name Ada")
    assert len(person.asked) == 1
    assert daemon.setting("core.hooksPath") == ".husky"


@pytest.mark.parametrize("answer", [False, None])
async def test_without_a_yes_it_stays_put_back(daemon: Daemon, answer: bool | None) -> None:
    daemon.guard.let_ask(Person(answer))
    done = await daemon.run("git config core.hooksPath .husky")
    assert "core.hookspath" in done.text
    assert daemon.setting("core.hooksPath") == ""


async def test_what_the_person_sets_between_two_calls_is_theirs(daemon: Daemon) -> None:
    await daemon.run("true")
    git("config", "--file", str(daemon.config), "credential.helper", "store")
    done = await daemon.run("true")
    assert done.text == ""
    assert daemon.setting("credential.helper") == "store"


async def test_a_process_that_was_left_running_changes_nothing_unseen(daemon: Daemon) -> None:
    gate = daemon.workspace / "gate"
    script = "until [ -e gate ]; do sleep 0.02; done; git config core.pager evil; touch done"
    await daemon.run(f"setsid sh -c '{script}' >/dev/null 2>&1 &")
    gate.touch()
    await until((daemon.workspace / "done").exists, "the process that was left has written")
    assert "core.pager" in (await daemon.run("true")).text
    assert daemon.setting("core.pager") == ""


async def test_the_end_of_a_command_in_the_background_is_looked_at(daemon: Daemon) -> None:
    call = daemon.call(RunCommand("read line < gate; git config core.pager evil", timeout_s=None))
    await daemon.run("mkfifo gate")
    begun = await daemon.boxes.run_a_while(daemon.key, call, None, 0.05)
    assert isinstance(begun, StillRuns)
    await daemon.run("echo go > gate")
    ended = await daemon.boxes.watch(daemon.key, call.call_key)
    assert ended is not None and ended.exit_code == 0
    assert daemon.setting("core.pager") == ""
    assert len(daemon.noted) == 1


async def test_what_is_typed_into_a_running_command_is_looked_at(daemon: Daemon) -> None:
    command = 'while read line; do eval "$line"; done'
    call = daemon.call(RunCommand(command, timeout_s=None, session=Session(terminal=False)))
    assert isinstance(await daemon.boxes.run_a_while(daemon.key, call, None, 0.05), StillRuns)
    await daemon.boxes.write(daemon.key, call.call_key, b"git config core.pager evil; echo typed\n")
    text = b""
    async with asyncio.timeout(LIMIT_S):
        while b"typed" not in text:
            part = await daemon.boxes.read(daemon.key, call.call_key, 0, 1000)
            assert part is not None
            text = part.data
    assert daemon.setting("core.pager") == ""
    assert "core.pager" in (await daemon.run("true")).text


async def test_a_daemon_killed_in_mid_call_leaves_it_to_the_next(daemon: Daemon, tmp_path: Path) -> None:
    await daemon.run("mkfifo gate")
    call = daemon.call(RunCommand("read line < gate; git config core.pager evil"))
    running = asyncio.create_task(daemon.boxes.run(daemon.key, call))
    await until(lambda: any(box.running_calls for box in daemon.boxes.statuses()), "it runs")
    await daemon.boxes.aclose()
    await asyncio.gather(running, return_exceptions=True)
    await asyncio.to_thread((daemon.workspace / "gate").write_text, "go\n")
    following = Daemon(tmp_path, daemon.workspace, daemon.count)
    await following.manager.start()
    try:
        # Whatever comes first in this workspace: it is not taken for the person's.
        await until(lambda: following.setting("core.pager") == "evil" or bool(following.noted), "it has written")
        await following.manager.end(following.key)
        assert "core.pager" in (await following.run("true")).text
        assert following.setting("core.pager") == ""
    finally:
        await following.aclose()


async def test_new_repositories_below_are_told_once(daemon: Daemon) -> None:
    await daemon.run("true")
    done = await daemon.run("mkdir -p deep/er && git init -q deep/er")
    assert "New git repositories" in done.text and "deep/er" in done.text
    assert (await daemon.run("true")).text == ""


async def test_a_repository_the_agent_makes_is_disarmed_and_guarded_from_then_on(tmp_path: Path) -> None:
    with workspace_for_tests() as workspace:
        own(workspace, box_user_for_tests())
        daemon = Daemon(tmp_path, workspace)
        try:
            await daemon.run("true")
            done = await daemon.run(
                "git init -q . && git config core.fsmonitor ./evil"
                " && printf '#!/bin/sh\\ntouch ran\\n' > .git/hooks/pre-commit && chmod +x .git/hooks/pre-commit"
                " && echo ../evil > .git/commondir"
            )
            assert done.exit_code == 0
            assert "hooks/pre-commit" in done.text and "commondir" in done.text
            assert "core.fsmonitor" in done.text
            assert daemon.setting("core.fsmonitor") == ""
            assert not (workspace / ".git/hooks/pre-commit").exists()
            done = await daemon.run("echo x > .git/hooks/post-commit")
            assert done.exit_code != 0
            done = await daemon.run(
                "git config user.name a && git config user.email b && git commit --allow-empty -qm x"
            )
            assert (done.exit_code, done.text) == (0, "")
        finally:
            await daemon.aclose()


async def test_the_configuration_of_a_new_repository_is_a_file_of_its_own(tmp_path: Path) -> None:
    with workspace_for_tests() as workspace:
        own(workspace, box_user_for_tests())
        daemon = Daemon(tmp_path, workspace)
        try:
            done = await daemon.run("git init -q . && mv .git/config config && ln -s ../config .git/config")
            assert "was put back" in done.text
            assert not daemon.config.is_symlink()
            assert daemon.setting("core.repositoryformatversion") == "0"
        finally:
            await daemon.aclose()


PLANTED = {
    "fsmonitor": 'git config core.fsmonitor "$PWD/evil"',
    "hooks folder": "mkdir h && cp evil h/post-index-change && git config core.hooksPath h",
    "filter": "git config filter.x.clean ./evil && echo '* filter=x' > .gitattributes && echo new > tracked",
    "included": 'printf "[core]\\n\\tfsmonitor = $PWD/evil\\n" > more && git config include.path ../more',
}


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "control"])
@pytest.mark.parametrize("plant", PLANTED.values(), ids=PLANTED)
async def test_git_outside_runs_nothing_of_the_agents(daemon: Daemon, plant: str, guarded: bool) -> None:
    boxes = daemon.boxes if guarded else daemon.manager
    script = "printf '#!/bin/sh\\ntouch ran\\ncat\\n' > evil && chmod +x evil"
    first = "echo old > tracked && git add tracked && git -c user.name=a -c user.email=b commit -qm one"
    for command in (first, script, plant):
        done = await boxes.run(daemon.key, daemon.call(RunCommand(command)))
        assert done.exit_code == 0, done.text
    outside = ("-C", str(daemon.workspace), "-c", "safe.directory=*")
    await asyncio.to_thread(git, *outside, "add", "tracked")
    await asyncio.to_thread(git, *outside, "status")
    assert (daemon.workspace / "ran").exists() is not guarded


async def test_a_repository_that_is_made_and_removed_leaves_no_doubt(tmp_path: Path) -> None:
    with workspace_for_tests() as workspace:
        own(workspace, box_user_for_tests())
        daemon = Daemon(tmp_path, workspace)
        try:
            await daemon.run("setsid sleep 60 & git init -q .")
            assert daemon.config.exists()
            assert (await daemon.run("rm -rf .git")).text == ""
            assert (await daemon.run("true")).text == ""
            assert "was put back" in (await daemon.run("git init -q . && git config core.pager evil")).text
        finally:
            await daemon.aclose()


IN_A_NEW_REPOSITORY = {
    "hook": "cp evil .git/hooks/pre-commit",
    "linked hooks": "mkdir h && cp evil h/pre-commit && rm -r .git/hooks && ln -s ../h .git/hooks",
    "commondir": "cp -r .git other && cp evil other/hooks/pre-commit && echo ../other > .git/commondir",
    "worktree configuration": (
        "mkdir h && cp evil h/pre-commit && git config extensions.worktreeConfig true"
        " && git config --worktree core.hooksPath h"
    ),
}


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "control"])
@pytest.mark.parametrize("plant", IN_A_NEW_REPOSITORY.values(), ids=IN_A_NEW_REPOSITORY)
async def test_git_outside_runs_nothing_of_a_repository_that_was_not_there(
    tmp_path: Path, plant: str, guarded: bool
) -> None:
    with workspace_for_tests() as workspace:
        own(workspace, box_user_for_tests())
        daemon = Daemon(tmp_path, workspace)
        boxes = daemon.boxes if guarded else daemon.manager
        script = "printf '#!/bin/sh\\ntouch ran\\n' > evil && chmod +x evil && git init -q . && "
        try:
            done = await boxes.run(daemon.key, daemon.call(RunCommand(script + plant)))
            assert done.exit_code == 0, done.text
        finally:
            await daemon.aclose()
        person = ("-c", "safe.directory=*", "-c", "user.name=a", "-c", "user.email=b")
        await asyncio.to_thread(git, "-C", str(workspace), *person, "commit", "-q", "--allow-empty", "-m", "one")
        assert (workspace / "ran").exists() is not guarded
