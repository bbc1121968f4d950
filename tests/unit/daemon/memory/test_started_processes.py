"""Starting a process costs more than all its work here, so how many are started is part of what memory promises."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from lodger_daemon.memory.contract import SyncOutcome
from support.git_host_server import RunningHost
from support.memory_machines import AGENT, CARD, Machine, note
from support.plain_boxes import agent_git
from support.started_processes import git_commands, started_processes


@asynccontextmanager
async def level(folder: Path, hub: RunningHost | None) -> AsyncIterator[Machine]:
    """A machine that has synced a moment ago, so that both gits that stay are there."""
    machine = Machine(folder, hub)
    try:
        await machine.memory.prepare(AGENT, CARD)
        machine.commit("fact.md", note("blue"))
        await machine.bring_in()
        await machine.end_turn()
        yield machine
    finally:
        await machine.memory.aclose()


async def test_nothing_to_sync_starts_no_process(tmp_path: Path, hub: RunningHost) -> None:
    async with level(tmp_path / "a", hub) as one:
        with started_processes() as started:
            await one.memory.freshen(AGENT, 5)
            await one.memory.compiled(AGENT)
            assert (await one.bring_in()).moved is False
            one.memory.turn_ended(AGENT, None)
            assert (await one.memory.settled(AGENT, 5)).outcome is SyncOutcome.CLEAN
            one.memory.head_announced(AGENT, hub.host.head(AGENT) or "")
            await one.memory.settled(AGENT, 5)
        assert git_commands(started) == []


async def test_after_a_turn_with_tools_one_git_looks_for_what_is_not_committed(
    tmp_path: Path, hub: RunningHost
) -> None:
    async with level(tmp_path / "a", hub) as one:
        with started_processes() as started:
            assert (await one.end_turn()).outcome is SyncOutcome.CLEAN
        assert git_commands(started) == ["status"]
        assert one.boxes.programs[-1][3] == "status"


async def test_one_commit_is_published_with_two_gits(tmp_path: Path, hub: RunningHost) -> None:
    async with level(tmp_path / "a", hub) as one:
        commit = one.commit("place.md", note("Berlin"))
        with started_processes() as started:
            report = await one.bring_in()
        assert (report.moved, one.published.head()) == (True, commit)
        assert git_commands(started) == ["pack-objects", "unpack-objects"]


async def test_several_commits_at_once_take_no_more_gits(tmp_path: Path, hub: RunningHost) -> None:
    async with level(tmp_path / "a", hub) as one:
        for number in range(4):
            commit = one.commit(f"people/p{number}.md", note(str(number)))
        agent_git(one.checkout, "commit", "-q", "--allow-empty", "-m", "nothing")
        commit = agent_git(one.checkout, "rev-parse", "HEAD")
        with started_processes() as started:
            report = await one.bring_in()
        assert (report.moved, one.published.head()) == (True, commit)
        assert git_commands(started) == ["pack-objects", "unpack-objects"]


async def test_the_two_gits_that_stay_are_started_once(tmp_path: Path) -> None:
    async with level(tmp_path / "a", None) as one:
        one.published.close()
        one.commit("place.md", note("Berlin"))
        with started_processes() as started:
            assert (await one.bring_in()).moved
        assert sorted(git_commands(started)) == ["cat-file", "pack-objects", "unpack-objects", "update-ref"]
        one.commit("train.md", note("At nine."))
        with started_processes() as started:
            assert (await one.bring_in()).moved
        assert git_commands(started) == ["pack-objects", "unpack-objects"]
