"""A checkout whose update was killed half-way: what the update wrote is put back, what the agent wrote is not."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from lodger_daemon.memory.contract import SyncOutcome
from support.git_host_server import RunningHost
from support.memory_conflicts import heard, in_order
from support.memory_machines import AGENT, CARD, Machine, note
from support.plain_boxes import agent_git

LONG = note("blue, and on Sundays green")


@asynccontextmanager
async def half_updated(tmp_path: Path, hub: RunningHost, marked: bool) -> AsyncIterator[Machine]:
    """One file was written whole, one cut short, a new one cut short, a new one not at all."""
    one, two = Machine(tmp_path / "one", hub), Machine(tmp_path / "two", hub)
    try:
        await one.memory.prepare(AGENT, CARD)
        for name in ("fact.md", "place.md", "train.md"):
            one.commit(name, note("short", name))
        await one.end_turn()
        await two.memory.prepare(AGENT, None)
        old = two.published.head()
        for name in ("fact.md", "place.md", "new.md", "other.md"):
            new = one.commit(name, LONG)
        await one.end_turn()
        agent_git(two.checkout, "fetch", "-q", str(hub.host._repositories.path(AGENT)), "main")
        if marked:
            (two.checkout / ".git/lodger-updating").write_text(f"{old} {new}\n")
        (two.checkout / "fact.md").write_text(LONG)
        (two.checkout / "place.md").write_text(LONG[:20])
        (two.checkout / "new.md").write_text(LONG[:5])
        yield two
        in_order(one)
    finally:
        await one.memory.aclose()
        await two.memory.aclose()


async def test_an_update_that_was_killed_is_done_again(tmp_path: Path, hub: RunningHost) -> None:
    async with half_updated(tmp_path, hub, marked=True) as two:
        (two.checkout / "draft.md").write_text("the agent's own")
        assert await heard(two, hub) is SyncOutcome.CLEAN
        for name in ("fact.md", "place.md", "new.md", "other.md"):
            assert (two.checkout / name).read_text() == LONG
        assert agent_git(two.checkout, "status", "--porcelain") == "?? draft.md"
        assert not (two.checkout / ".git/lodger-updating").exists()


async def test_what_the_agent_wrote_since_is_left_alone(tmp_path: Path, hub: RunningHost) -> None:
    async with half_updated(tmp_path, hub, marked=True) as two:
        (two.checkout / "place.md").write_text("written since")
        assert await heard(two, hub) is SyncOutcome.IN_THE_WAY
        assert (two.checkout / "place.md").read_text() == "written since"
        (two.checkout / "place.md").write_text(note("short", "place.md"))
        assert (await two.end_turn()).outcome is SyncOutcome.CLEAN
        assert (two.checkout / "place.md").read_text() == LONG
        in_order(two)


async def test_without_a_killed_update_even_an_emptied_file_is_the_agents(tmp_path: Path, hub: RunningHost) -> None:
    async with half_updated(tmp_path, hub, marked=False) as two:
        (two.checkout / "place.md").write_text("")
        assert await heard(two, hub) is SyncOutcome.IN_THE_WAY
        assert (two.checkout / "place.md").read_text() == ""
        assert (two.checkout / "new.md").read_text() == LONG[:5]
