"""G4, G6: kill -9 while a conflict is found, held, worked beside and decided. Neither side is lost, and it goes on."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lodger_daemon.memory.contract import SyncOutcome
from support.git_host_server import RunningHost, running_git_host
from support.memory_conflicts import in_order
from support.memory_machines import AGENT, CARD, Machine, note
from support.plain_boxes import agent_git

VICTIM = Path(__file__).parents[2] / "support" / "holding_victim.py"
NEW = {
    f"{when} {what}"
    for when in ("before", "after")
    for what in (
        "keeping both sides", "holding a conflict", "putting commits below a held one", "ending a conflict",
        "replacing the state of sync",
    )
}  # fmt: skip


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[RunningHost]:
    with running_git_host(tmp_path / "hub") as running:
        yield running


@pytest.mark.timeout(300)
async def test_g6_kill_at_every_named_seam_of_a_conflict(tmp_path: Path, hub: RunningHost) -> None:
    other = Machine(tmp_path / "other", hub)
    try:
        await other.memory.prepare(AGENT, CARD)
        names = await one_life(tmp_path, hub, other, 0)
        assert set(names) >= NEW
        moments = {names.index(name) + 1 for name in NEW}
        # Each durable state on the way: what is before the next move of refs is what was after the last.
        found = range(names.index("before keeping both sides"), names.index("after holding a conflict"))
        moments |= {at + 1 for at in found if names[at] == "after moving refs"}
        for at in sorted(moments):
            await one_life(tmp_path, hub, other, at)
        print("seams hit:", ", ".join(f"{names[at - 1]} ({at})" for at in sorted(moments)))
    finally:
        await other.memory.aclose()


async def one_life(tmp_path: Path, hub: RunningHost, other: Machine, die_at: int) -> list[str]:
    """A machine dies in a conflict and lives again; its agent decides, if it has not yet. Returns the seams passed."""
    folder, record = tmp_path / f"victim{die_at}", tmp_path / f"seams{die_at}"
    path = f"{folder.name}.md"
    other.commit(path, note("blue"))
    await other.end_turn()
    with start_victim(folder, hub, record, die_at) as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline() == "ready\n"
        other.commit(path, note("green"), f"other makes {path} green")
        assert (await other.end_turn()).outcome is SyncOutcome.PUSHED
        _, said = victim.communicate("go on\n", timeout=60)
    assert victim.returncode == (-signal.SIGKILL if die_at else 0), said
    names = record.read_text().splitlines()
    await lives_again(folder, hub, other, record.with_suffix(".made").read_text().splitlines())
    return names


def start_victim(folder: Path, hub: RunningHost, record: Path, die_at: int) -> subprocess.Popen[str]:
    argv = [sys.executable, str(VICTIM), str(folder), hub.base_url, str(record), str(die_at)]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join((str(VICTIM.parents[1]), *sys.path[1:]))}
    pipe = subprocess.PIPE
    return subprocess.Popen(argv, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


async def lives_again(folder: Path, hub: RunningHost, other: Machine, made: list[str]) -> None:
    again, path = Machine(folder, hub), f"{folder.name}.md"
    try:
        await again.memory.prepare(AGENT, None)
        await again.memory.start()
        await again.memory.settled(AGENT, 30)
        status = await again.end_turn()
        assert status.outcome in {SyncOutcome.CLEAN, SyncOutcome.PUSHED, SyncOutcome.CONFLICT}, status
        decided = f"{folder.name} makes {path} red and green" in made
        assert (status.outcome is SyncOutcome.CONFLICT) is not decided, status
        if not decided:
            # Nobody picked a side: each has its own version, and the reminder says where.
            assert "red" in (again.checkout / path).read_text()
            assert "green" in agent_git(hub.host._repositories.path(AGENT), "show", f"main:{path}")
            assert path in again.memory.reminders(AGENT)[0]
            assert "green" in agent_git(again.checkout, "show", f"refs/lodger/theirs:{path}")
            again.commit(path, note("red and green"))
            assert (await again.end_turn()).outcome is SyncOutcome.PUSHED
        assert again.memory.reminders(AGENT) == ()
        on_hub = agent_git(hub.host._repositories.path(AGENT), "show", f"main:{path}")
        assert on_hub == note("red and green").strip()
        kept = again.published.git.line("log", "--all", "--format=%B")
        for message in (*made, f"other makes {path} green"):
            assert message in kept, (message, made)
        if any("tea" in message for message in made):
            assert (again.checkout / f"{folder.name}-tea.md").exists()
        assert again.published.head() == hub.host.head(AGENT)
        other.memory.head_announced(AGENT, hub.host.head(AGENT) or "")
        await other.memory.settled(AGENT, 30)
        assert (other.checkout / path).read_text() == note("red and green")
        in_order(again, other)
        agent_git(hub.host._repositories.path(AGENT), "fsck", "--full", "--strict")
    finally:
        await again.memory.aclose()
