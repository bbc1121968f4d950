"""Two machines that do not agree about a memory, for tests of what happens then. Real git."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from lodger_daemon.memory.contract import SyncOutcome
from support.git_host_server import RunningHost
from support.memory_machines import AGENT, CARD, Machine, note
from support.plain_boxes import agent_git


@asynccontextmanager
async def apart(
    tmp_path: Path, hub: RunningHost, *changes: tuple[str, str | None, str | None]
) -> AsyncIterator[tuple[Machine, Machine]]:
    """Two machines that know the same and then change it differently; the second is in conflict.

    Args:
        changes: path, what the first machine makes of it, what the second does; None deletes.
    """
    one, two = Machine(tmp_path / "a", hub), Machine(tmp_path / "b", hub)
    try:
        await one.memory.prepare(AGENT, CARD)
        one.commit("fact.md", note("blue"))
        one.commit("place.md", note("Berlin"))
        await one.end_turn()
        await two.memory.prepare(AGENT, None)
        for path, theirs, _ in changes:
            one.commit(path, theirs)
        await one.end_turn()
        for path, _, ours in changes:
            two.commit(path, ours)
        assert (await two.end_turn()).outcome is SyncOutcome.CONFLICT
        yield one, two
    finally:
        await one.memory.aclose()
        await two.memory.aclose()


async def heard(machine: Machine, hub: RunningHost) -> SyncOutcome:
    """The machine is told the hub's head and takes it in."""
    machine.memory.head_announced(AGENT, hub.host.head(AGENT) or "")
    return (await machine.memory.settled(AGENT, 20)).outcome


def on_hub(hub: RunningHost, path: str) -> str:
    return agent_git(hub.host._repositories.path(AGENT), "show", f"main:{path}")


def in_order(*machines: Machine) -> None:
    for machine in machines:
        assert machine.fsck() == ""
        assert agent_git(machine.checkout, "status", "--porcelain") == ""
        assert agent_git(machine.checkout, "rev-parse", "main") == machine.published.head()
