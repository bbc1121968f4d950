"""What a box tells of the memory's main with the end of a call, so that it need not be asked after each."""

import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lodger_tools.box.contract import BoxCall, BoxKey, BoxOutcome, RunCommand, WriteFile
from lodger_tools.box.manager import BoxManager
from lodger_tools.output.overflow import OverflowFolder
from lodger_tools.toolbox import LodgerToolbox
from lodger_tools.toolbox_contract import ToolRequest
from support.plain_runner import PlainStarter, plain_request

COMMIT = "git -c user.name=a -c user.email=a@b -C checkout commit -q --allow-empty -m one"


class Rig:
    def __init__(self, folder: Path) -> None:
        self.workspace = folder / "workspace"
        self.checkout = self.workspace / "checkout"
        self.checkout.mkdir(parents=True)
        self.starter = PlainStarter()
        self.manager = BoxManager(folder / "boxes", plain_request, start_detached=self.starter)
        self.key = BoxKey("agent-1", str(self.workspace))
        self.git("init", "-q", "-b", "main")
        self.git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "zero")

    def git(self, *argv: str) -> str:
        done = subprocess.run(("git", "-C", str(self.checkout), *argv), check=True, capture_output=True, text=True)
        return done.stdout.strip()

    async def run(self, command: str, checkout: str) -> BoxOutcome:
        call = BoxCall(f"call/{command}", RunCommand(command), str(self.workspace), {}, checkout)
        return await self.manager.run(self.key, call)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    made = Rig(tmp_path)
    yield made
    await made.manager.aclose()
    made.starter.end_all()


async def test_the_head_is_the_one_after_the_call(rig: Rig) -> None:
    before = rig.git("rev-parse", "main")
    assert (await rig.run("true", str(rig.checkout))).head == before
    after = await rig.run(COMMIT, str(rig.checkout))
    assert after.head == rig.git("rev-parse", "main") != before
    write = WriteFile(str(rig.workspace / "a"), "text")
    written = await rig.manager.run(rig.key, BoxCall("call/w", write, str(rig.workspace), {}, str(rig.checkout)))
    assert written.head == after.head


async def test_nothing_is_told_where_nothing_was_asked_for(rig: Rig) -> None:
    assert (await rig.run("true", "")).head == ""


@pytest.mark.parametrize("plant", ["rm -rf checkout", "mkfifo ref", "echo ../etc > ref", "ln -s /etc/passwd ref"])
async def test_a_checkout_that_cannot_be_read_changes_nothing_of_a_call(rig: Rig, plant: str) -> None:
    ref = rig.checkout / ".git/refs/heads/main"
    ref.unlink()
    outcome = await rig.run(f"{plant.replace('ref', str(ref))}; echo done", str(rig.checkout))
    assert (outcome.status, outcome.text, outcome.head) == ("success", "done\n", "")


async def test_only_a_call_that_ended_just_now_tells_its_head(rig: Rig, tmp_path: Path) -> None:
    toolbox = LodgerToolbox(rig.manager, OverflowFolder(tmp_path / "overflow", None), checkout=str(rig.checkout))
    request = ToolRequest("key/1", "Bash", {"command": COMMIT}, rig.key, str(rig.workspace))
    ran = await toolbox.run(request)
    assert (ran.status, ran.memory_head) == ("success", rig.git("rev-parse", "main"))
    collected = await toolbox.collect(request)
    assert collected is not None
    assert (collected.text, collected.memory_head) == (ran.text, "")
