"""The agent is told to merge `refs/lodger/theirs`: that it finds the right commit there. Real git on both sides."""

import subprocess
from pathlib import Path

import pytest

from lodger_daemon.memory.contract import SyncOutcome
from support.git_host_server import RunningHost
from support.memory_conflicts import apart, in_order, on_hub
from support.memory_machines import AGENT, Machine, note
from support.plain_boxes import agent_git

AGENT_IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@example.org")


async def person_and_agent_write(machine: Machine, path: str) -> None:
    """Both change the same place while the checkout cannot be brought along."""
    machine.boxes.busy_agents.add(AGENT)
    await machine.memory.change_for_person(AGENT, path, note("Bergen").encode(), "by hand")
    await machine.memory.settled(AGENT, 30)
    machine.boxes.busy_agents.clear()
    machine.commit(path, note("Turin"))


def merge_as_told(machine: Machine, path: str, text: str) -> None:
    argv = ["git", "-C", str(machine.checkout), *AGENT_IDENTITY, "merge", "-q", "refs/lodger/theirs"]
    assert subprocess.run(argv, capture_output=True, check=False).returncode == 1, "a conflict in one path"
    assert agent_git(machine.checkout, "diff", "--name-only", "--diff-filter=U").split() == [path]
    machine.commit(path, text)


@pytest.mark.parametrize("ends_turn", [False, True], ids=["with its next call", "in its next turn"])
async def test_beside_a_conflict_with_another_machine(tmp_path: Path, hub: RunningHost, ends_turn: bool) -> None:
    async with apart(tmp_path, hub, ("fact.md", note("green"), note("red"))) as (_, two):
        await person_and_agent_write(two, "place.md")
        words = (await two.bring_in()).text
        assert "refs/lodger/theirs" in words and "place.md" in words
        if ends_turn:
            for _ in range(3):
                assert (await two.end_turn()).outcome is SyncOutcome.CONFLICT
                assert agent_git(two.checkout, "rev-parse", "refs/lodger/theirs") == two.published.head()
        merge_as_told(two, "place.md", note("Turin and Bergen"))
        assert (await two.bring_in()).moved
        assert (await two.end_turn()).outcome in {SyncOutcome.PUSHED, SyncOutcome.CONFLICT}
        assert "Turin and Bergen" in on_hub(hub, "place.md")
        in_order(two)
