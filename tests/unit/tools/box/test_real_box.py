"""The same through the real sandbox: bwrap around the runner."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lodger_tools.box.contract import BoxCall, BoxKey, BoxOutcome, Operation, ReadFile, RunCommand
from lodger_tools.box.manager import BoxManager
from lodger_tools.output.overflow import OverflowFolder, OverflowOwner
from lodger_tools.toolbox import LodgerToolbox
from lodger_tools.toolbox_contract import EffectUnknown, ToolOutcome, ToolRequest
from support.real_boxes import RealRequests, box_user_for_tests, workspace_for_tests

pytestmark = pytest.mark.needs("bwrap")


class RealRig:
    def __init__(self, state: Path, workspace: Path) -> None:
        user = box_user_for_tests()
        self.overflow = OverflowFolder(state / "overflow", OverflowOwner(user.uid, user.gid))
        self.requests = RealRequests(state, Path.home(), (self.overflow.mount("agent-1"),))
        self.state = state
        self.workspace = workspace
        self.key = BoxKey("agent-1", str(workspace))
        self.managers = [BoxManager(state / "boxes", self.requests)]
        self.count = 0

    async def run(self, operation: Operation) -> BoxOutcome:
        self.count += 1
        return await self.managers[-1].run(self.key, BoxCall(f"k{self.count}", operation, str(self.workspace)))

    async def tool(self, name: str, **arguments: str) -> ToolOutcome:
        self.count += 1
        toolbox = LodgerToolbox(self.managers[-1], self.overflow)
        return await toolbox.run(ToolRequest(f"k{self.count}", name, {**arguments}, self.key, str(self.workspace)))


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[RealRig]:
    with workspace_for_tests() as workspace:
        rig = RealRig(tmp_path, workspace)
        yield rig
        for manager in rig.managers:
            await manager.start()
            await manager.end(rig.key)
            await manager.aclose()


async def test_the_runner_is_first_process_and_cannot_be_touched(rig: RealRig) -> None:
    seen = await rig.run(RunCommand("echo $$; kill -9 1; kill -TERM 1; kill -INT 1; kill -STOP 1; cat /proc/1/environ"))
    assert "Permission denied" in seen.text and seen.leftovers == 0
    descriptors = await rig.run(RunCommand("ls /proc/1/fd 2>&1; for f in /proc/self/fd/*; do readlink $f; done"))
    assert "socket:" not in descriptors.text and "lock" not in descriptors.text
    await rig.run(RunCommand("kill -9 -1; kill -9 0"))
    assert (await rig.run(RunCommand("echo lives"))).text == "lives\n"


async def test_nothing_of_the_daemons_environment_is_inside(rig: RealRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """N8."""
    monkeypatch.setenv("LODGER_CANARY", "canary-value-in-the-daemon")
    outcome = await rig.run(RunCommand("env; cat /proc/*/environ; ps axe"))
    assert "PATH=" in outcome.text and "canary" not in outcome.text.replace("LODGER_CANARY", "")


async def test_a_restarted_daemon_collects_from_a_real_box(rig: RealRig) -> None:
    await rig.run(RunCommand("echo kept"))
    await rig.managers[0].aclose()
    rig.managers.append(BoxManager(rig.state / "boxes", rig.requests))
    assert await rig.managers[-1].collect(rig.key, "k1") == BoxOutcome("success", "kept\n", exit_code=0)


async def test_a_truncated_result_names_a_file_that_the_box_can_read(rig: RealRig) -> None:
    outcome = await rig.tool("Bash", command="seq 1 20000")
    assert outcome.overflow_path is not None and outcome.overflow_path in outcome.text
    assert len(outcome.text) <= 30_000
    whole = await rig.tool("Bash", command=f"wc -l <{outcome.overflow_path}; echo x >>{outcome.overflow_path}")
    assert whole.text.startswith("Exit code: 1\n20000\n")


async def test_a_box_that_is_killed_in_mid_call_leaves_the_effect_unknown(rig: RealRig) -> None:
    (rig.workspace / "a").write_text("x\n")
    await rig.run(ReadFile("a"))
    pid = rig.managers[-1].statuses()[0].host_pid
    toolbox = LodgerToolbox(rig.managers[-1], rig.overflow)

    def kill(text: str) -> None:
        os.kill(pid, 9)

    request = ToolRequest("k-lost", "Bash", {"command": "echo begun; sleep 5"}, rig.key, str(rig.workspace))
    with pytest.raises(EffectUnknown):
        await toolbox.run(request, kill)
