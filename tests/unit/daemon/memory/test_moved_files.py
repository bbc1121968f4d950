"""One machine moves a file and changes it, the other writes it where it was: neither loses a word. Real git."""

from pathlib import Path

import pytest

from lodger_daemon.memory.contract import SyncOutcome
from lodger_daemon.memory.settling import Decision, Settled, Side
from support.git_host_server import RunningHost
from support.memory_conflicts import apart, heard, in_order
from support.memory_machines import AGENT, Machine, note
from support.plain_boxes import agent_git

KNOWN = "\n".join(f"line {number} of what both know" for number in range(12))
MOVED, WRITTEN = "moved there", "written here"


async def know_a_place(one: Machine, two: Machine, hub: RunningHost) -> None:
    one.commit("place.md", note(KNOWN))
    await one.end_turn()
    await heard(two, hub)
    assert KNOWN in (two.checkout / "place.md").read_text()


async def change_it(one: Machine, two: Machine, hub: RunningHost) -> SyncOutcome:
    (one.checkout / "place.md").unlink()
    one.commit("moved.md", note(f"{KNOWN}\n{MOVED}"))
    await one.end_turn()
    two.commit("place.md", note(f"{KNOWN}\n{WRITTEN}"))
    await two.end_turn()
    return await heard(two, hub)


def files_with(words: str, machine: Machine) -> list[str]:
    return agent_git(machine.checkout, "grep", "-l", words, "main").split()


@pytest.mark.parametrize("side", Side)
async def test_beside_a_conflict(tmp_path: Path, hub: RunningHost, side: Side) -> None:
    async with apart(tmp_path, hub, ("fact.md", note("green"), note("red"))) as (one, two):
        await know_a_place(one, two, hub)
        assert await change_it(one, two, hub) is SyncOutcome.CONFLICT
        assert (files_with(WRITTEN, two), files_with(MOVED, two)) == (["main:place.md"], ["main:moved.md"])
        assert isinstance(await two.memory.settle(AGENT, Decision(rest=side)), Settled)
        await two.memory.settled(AGENT, 30)
        await heard(one, hub)
        assert files_with(MOVED, one) == ["main:moved.md"]
        assert two.published.git.line("log", "--all", "--format=%H", "-S", WRITTEN)
        if side is Side.OURS:
            assert files_with(WRITTEN, one) == ["main:place.md"]
        in_order(one, two)
