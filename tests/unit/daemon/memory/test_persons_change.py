"""A person's change of memory beside what agents and other machines do, with real git."""

from pathlib import Path

import pytest

from lodger_daemon.memory.contract import SyncOutcome
from lodger_daemon.memory.errors import MemoryUnavailable
from lodger_daemon.memory.persons_change import Committed, Invalid, Unchanged
from lodger_daemon.memory.persons_view import file_at
from lodger_daemon.memory.published import CHECKOUT, REMOTE
from support.git_host_server import RunningHost
from support.memory_machines import AGENT, Machine, note, running_machine
from support.plain_boxes import agent_git


async def changed(one: Machine, path: str, text: str | None) -> str:
    result = await one.memory.change_for_person(AGENT, path, None if text is None else text.encode(), "by hand")
    assert isinstance(result, Committed), result
    return result.sha


async def test_it_reaches_the_hub_and_another_machine(tmp_path: Path, hub: RunningHost) -> None:
    async with running_machine(tmp_path / "a", hub) as one:
        await one.end_turn()
        sha = await changed(one, "notes/fact.md", note("fact"))
        assert (await one.memory.settled(AGENT, 30)).outcome is SyncOutcome.PUSHED
        assert one.published.ref(REMOTE) == sha
        async with running_machine(tmp_path / "b", hub) as other:
            assert other.published.head() == sha
            assert agent_git(other.checkout, "rev-parse", "main") == sha


async def test_what_the_agent_committed_meanwhile_is_kept(tmp_path: Path) -> None:
    async with running_machine(tmp_path / "a") as one:
        one.commit("own.md", note("own"))
        await changed(one, "notes/fact.md", note("fact"))
        await one.memory.settled(AGENT, 30)
        await one.end_turn()
        both = [await one.memory.look(AGENT, lambda pub, head, path=path: file_at(pub, head, path))
                for path in ("own.md", "notes/fact.md")]  # fmt: skip
        assert both == [note("own").encode(), note("fact").encode()]
        assert agent_git(one.checkout, "rev-parse", "main") == one.published.head() == one.published.ref(CHECKOUT)
        assert one.fsck() == ""


async def test_same_place_that_the_agent_committed_meanwhile_is_told_and_stays_told(tmp_path: Path) -> None:
    """The agent's commit is found only while the checkout is brought along, after the exchange is over."""
    async with running_machine(tmp_path / "a") as one:
        one.commit("fact.md", note("blue"))
        await one.end_turn()
        one.commit("fact.md", note("red"))
        await changed(one, "fact.md", note("green"))
        for status in (await one.memory.settled(AGENT, 30), await one.end_turn()):
            assert status.outcome is SyncOutcome.CONFLICT
            (reminder,) = one.memory.reminders(AGENT)
            assert "fact.md" in reminder
        assert (one.checkout / "fact.md").read_text() == note("red")


async def test_without_a_box_the_checkout_follows_later(tmp_path: Path) -> None:
    async with running_machine(tmp_path / "a") as one:
        one.boxes.broken = True
        sha = await changed(one, "notes/fact.md", note("fact"))
        await one.memory.settled(AGENT, 30)
        assert one.published.head() == sha != one.published.ref(CHECKOUT)
        one.boxes.broken = False
        await one.end_turn()
        assert agent_git(one.checkout, "rev-parse", "main") == sha


async def test_while_a_tool_call_runs_nothing_moves_under_it(tmp_path: Path) -> None:
    async with running_machine(tmp_path / "a") as one:
        before = agent_git(one.checkout, "rev-parse", "main")
        one.boxes.busy_agents.add(AGENT)
        sha = await changed(one, "notes/fact.md", note("fact"))
        await one.memory.settled(AGENT, 30)
        assert agent_git(one.checkout, "rev-parse", "main") == before
        one.boxes.busy_agents.clear()
        await one.end_turn()
        assert agent_git(one.checkout, "rev-parse", "main") == sha


async def test_outcomes(tmp_path: Path) -> None:
    async with running_machine(tmp_path / "a") as one:
        head = one.published.head()
        change = one.memory.change_for_person
        assert isinstance(await change(AGENT, "bare.md", b"no front matter", "m"), Invalid)
        assert await change(AGENT, "gone.md", None, "m") == Unchanged()
        assert await change(AGENT, "a/b/gone.md", None, "m") == Unchanged()
        assert one.published.head() == head
        one.commit("tool.sh", "#!/bin/sh\n")
        await one.bring_in()
        await changed(one, "tool.sh", "#!/bin/sh\necho\n")
        other = Machine(tmp_path / "b", None)
        with pytest.raises(MemoryUnavailable):
            await other.memory.look(AGENT, lambda published, head: head)
        await other.memory.aclose()
