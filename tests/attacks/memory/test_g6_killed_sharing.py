"""G6: kill -9 while a shared memory is attached, synced and detached loses nothing and leaves sound repositories."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.hub_rig import Hub, running_hub
from support.plain_boxes import agent_git
from support.shared_machines import NAME, SharingMachine, head_of, share
from support.shared_victim import AGENT, CHANGING

VICTIM = Path(__file__).parents[2] / "support" / "shared_victim.py"
AFTER = "after changing what is attached"
SAMPLE = (CHANGING, AFTER, "after renaming the new repository", "before moving refs", "after pushing")


async def life(folder: Path, hub: Hub, die_at: str = "") -> list[str]:
    """One daemon's life, to its end or to the first time that this seam comes up; the seams that did."""
    record = folder.with_name(f"{folder.name}-seams")
    record.unlink(missing_ok=True)
    argv = [sys.executable, str(VICTIM), str(folder), hub.url, str(hub.state), str(record), die_at]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(VICTIM.parents[1])}

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60)

    done = await asyncio.to_thread(run)
    assert done.returncode == (-signal.SIGKILL if die_at else 0), (die_at, done.stderr)
    return record.read_text().splitlines() if record.exists() else []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("sample", [True, pytest.param(False, marks=pytest.mark.soak)])
async def test_g6_kill_while_attached(tmp_path: Path, sample: bool) -> None:
    async with running_hub(tmp_path / "hub") as hub:
        await share(hub, {AGENT: "write"})
        names = await life(tmp_path / "whole", hub)
        assert set(SAMPLE) <= set(names)
        for number, name in enumerate(SAMPLE if sample else dict.fromkeys(names)):
            folder = tmp_path / f"victim-{number}"
            await life(folder, hub, name)
            await life(folder, hub)
            await check(folder, hub)
        repository = hub.state / "git" / "shared" / NAME / "state.git"
        agent_git(tmp_path, f"--git-dir={repository}", "fsck", "--full", "--strict")


async def check(folder: Path, hub: Hub) -> None:
    machine = SharingMachine(folder, hub, AGENT)
    try:
        await machine.look()
        await machine.end_turn()
        assert agent_git(machine.checkout(), "rev-parse", "main") == head_of(hub)
        assert f"mine-{folder.name}.md" in agent_git(machine.checkout(), "ls-tree", "--name-only", "HEAD")
        assert agent_git(machine.checkout(), "status", "--porcelain") == ""
        assert machine.one().sync.room.published.git.line("fsck", "--full", "--strict", "--no-dangling") == ""
    finally:
        await machine.memory.aclose()


@pytest.mark.parametrize("seam", [CHANGING, AFTER])
async def test_g6_kill_while_detached(tmp_path: Path, seam: str) -> None:
    """Not synced are a commit in the checkout and a draft."""
    folder = tmp_path / "victim"
    async with running_hub(tmp_path / "hub") as hub:
        await share(hub, {AGENT: "write"})
        await life(folder, hub)
        one = SharingMachine(folder, hub, AGENT)
        late = one.commit("late.md", "late")
        (one.checkout() / "draft.md").write_text("a draft")
        await one.memory.aclose()
        await share(hub, {AGENT: "none"})
        await life(folder, hub, seam)
        await life(folder, hub)
        again = SharingMachine(folder, hub, AGENT)
        try:
            assert again.memory.shared is not None
            assert not again.memory.shared.of(again.agent)
            [aside] = again.memory.shared.set_aside(again.agent)
            assert (aside / "checkout" / "draft.md").read_text() == "a draft"
            assert agent_git(aside / "checkout", "rev-parse", "main") == late
        finally:
            await again.memory.aclose()
