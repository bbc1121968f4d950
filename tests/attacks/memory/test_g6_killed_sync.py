"""G6: kill -9 at the named seams of import and sync loses nothing and leaves sound repositories."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.git_host_server import RunningHost, running_git_host
from support.memory_machines import AGENT, CARD, Machine, note
from support.plain_boxes import agent_git

VICTIM = Path(__file__).parents[2] / "support" / "memory_victim.py"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[RunningHost]:
    with running_git_host(tmp_path / "hub") as running:
        yield running


def victim(folder: Path, hub: RunningHost, record: Path, die_at: int) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(VICTIM), str(folder), hub.base_url, str(record), str(die_at)]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(VICTIM.parents[1])}
    return subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60)


@pytest.mark.timeout(300)
async def test_g6_kill_at_every_named_seam(tmp_path: Path, hub: RunningHost) -> None:
    other = Machine(tmp_path / "other", hub)
    try:
        await other.memory.prepare(AGENT, CARD)
        await other.end_turn()
        names = await one_life(tmp_path, hub, other, 0)
        hit = []
        for name in dict.fromkeys(names):
            # First and last time that a name comes up: while the memory is founded, and at the end of the sync.
            for at in sorted({names.index(name) + 1, len(names) - names[::-1].index(name)}):
                await one_life(tmp_path, hub, other, at)
                hit.append(f"{name} ({at})")
        print("seams hit:", ", ".join(hit))
        assert {name.split(" ", 1)[1] for name in names} >= {
            "unpacking", "moving refs", "pushing", "fetching", "updating the checkout", "renaming the new repository",
        }  # fmt: skip
    finally:
        await other.memory.aclose()


async def one_life(tmp_path: Path, hub: RunningHost, other: Machine, die_at: int) -> list[str]:
    """A machine dies at the given seam and lives again; meanwhile another one pushes. Returns the seams passed."""
    folder, record = tmp_path / f"victim-{die_at}", tmp_path / f"seams-{die_at}"
    died = victim(folder, hub, record, die_at)
    assert died.returncode == (-signal.SIGKILL if die_at else 0), died.stderr
    names = record.read_text().splitlines()
    other.commit(f"other-{die_at}.md", note("other"))
    await other.end_turn()
    reborn = victim(folder, hub, record, 0)
    assert reborn.returncode == 0, reborn.stderr
    machine = Machine(folder, hub)
    try:
        await machine.memory.freshen(AGENT, 30)
        head = machine.published.head()
        assert head == hub.host.head(AGENT) == agent_git(machine.checkout, "rev-parse", "main")
        held = agent_git(machine.checkout, "ls-tree", "-r", "--name-only", "HEAD").split()
        assert {f"mine-{folder.name}.md", f"other-{die_at}.md"} <= set(held)
        assert machine.fsck() == ""
        agent_git(machine.checkout, "fsck", "--full", "--strict")
        agent_git(hub.host._repositories.path(AGENT), "fsck", "--full", "--strict")
    finally:
        await machine.memory.aclose()
    return names
