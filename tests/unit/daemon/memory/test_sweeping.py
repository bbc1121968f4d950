"""What no ref leads to goes, under the lock and once a day at most; a git killed there breaks nothing. Real git."""

import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from lodger_daemon.memory import housekeeping
from lodger_daemon.memory.contract import SyncOutcome
from lodger_daemon.memory.housekeeping import sweep_at_next, sweep_if_due
from lodger_daemon.memory.kept import drop_kept
from lodger_daemon.memory.published import Published
from support.git_host_server import running_git_host
from support.memory_conflicts import apart, in_order
from support.memory_machines import AGENT, Machine, note, running_machine

DAY_S = 24 * 3600
RESCUE = "refs/lodger/rescue/1-local"


def blob_of(published: Published, commit: str) -> str:
    return published.git.line("rev-parse", f"{commit}:secret.txt")


def another_history(published: Published, content: bytes) -> str:
    blob = published.git.line("hash-object", "-w", "--stdin", stdin=content)
    tree = published.git.line("mktree", stdin=f"100644 blob {blob}\tsecret.txt\n".encode())
    return published.git.line("commit-tree", tree, "-m", "another history")


@asynccontextmanager
async def with_another(folder: Path, content: bytes = b"secret") -> AsyncIterator[tuple[Machine, str]]:
    """A machine that was swept today, and a history beside its main."""
    async with running_machine(folder) as one:
        commit = await one.memory.look(AGENT, lambda published, _: another_history(published, content))
        one.published.set_ref(RESCUE, commit)
        for number in range(3):
            one.commit(f"n{number}.md", note(f"{number}"))
            assert (await one.end_turn()).outcome is SyncOutcome.SKIPPED
        assert (one.published.folder / "swept").exists()
        assert one.published.has(commit)
        yield one, commit


def drop(published: Published, _: str) -> None:
    drop_kept(published, "rescue/1-local")
    sweep_at_next(published)


async def test_what_a_person_drops_is_gone_after_the_next_sync_and_nothing_else_is(tmp_path: Path) -> None:
    async with with_another(tmp_path / "a") as (one, commit):
        blob = blob_of(one.published, commit)
        main = one.published.head() or ""
        history = one.published.git.line("rev-list", "--objects", main)
        text = (await one.memory.compiled(AGENT)).text
        await one.memory.look(AGENT, drop)
        assert one.published.has(blob)
        assert (await one.end_turn()).outcome is SyncOutcome.SKIPPED
        assert not one.published.has(blob)
        assert not one.published.has(commit)
        assert one.published.git.line("rev-list", "--objects", main) == history
        one.memory.repository(AGENT, None).room._compiled = None
        assert (await one.memory.compiled(AGENT)).text == text
        new = one.commit("fact.md", note("blue"))
        assert (await one.bring_in()).head == new
        in_order(one)


async def test_little_is_left_and_much_is_looked_for_once_a_day(tmp_path: Path) -> None:
    async with with_another(tmp_path / "a", random.Random(1).randbytes(5 * 1024**2)) as (one, large):
        small = await one.memory.look(AGENT, lambda published, _: another_history(published, b"small"))
        assert (await one.end_turn()).outcome is SyncOutcome.SKIPPED
        now_s = one.clock.wall()
        assert await one.memory.look(AGENT, lambda published, _: sweep_if_due(published, now_s + 2 * DAY_S))
        assert (one.published.has(small), one.published.has(large)) == (True, True)
        await one.memory.look(AGENT, lambda published, _: drop_kept(published, "rescue/1-local"))
        await one.memory.look(AGENT, lambda published, _: sweep_if_due(published, now_s + 2 * DAY_S + 60))
        assert one.published.has(large)
        await one.memory.look(AGENT, lambda published, _: sweep_if_due(published, now_s + 4 * DAY_S))
        assert (one.published.has(small), one.published.has(large)) == (False, False)
        in_order(one)


async def test_while_a_conflict_is_open_nothing_goes(tmp_path: Path) -> None:
    with running_git_host(tmp_path / "hub") as hub:
        async with apart(tmp_path, hub, ("fact.md", note("green"), note("red"))) as (_, two):
            loose = await two.memory.look(AGENT, lambda published, _: another_history(published, b"x"))
            await two.memory.look(AGENT, lambda published, _: sweep_at_next(published))
            assert (await two.end_turn()).outcome is SyncOutcome.CONFLICT
            assert two.published.has(loose)
            two.commit("fact.md", note("both"))
            assert (await two.end_turn()).outcome is SyncOutcome.PUSHED
            assert not two.published.has(loose)
            in_order(two)


async def test_a_git_that_is_killed_at_any_moment_of_it_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with with_another(tmp_path / "a", random.Random(2).randbytes(3 * 1024**2)) as (one, _):
        main = one.published.head() or ""
        history = one.published.git.line("rev-list", "--objects", "--all")
        killed = 0
        for number in range(40):
            content = random.Random(number).randbytes(200_000)
            await one.memory.look(AGENT, lambda published, _, content=content: another_history(published, content))
            await one.memory.look(AGENT, lambda published, _: sweep_at_next(published))
            monkeypatch.setattr(housekeeping, "_LIMIT_S", 0.001 + number * 0.002)
            killed += not await one.memory.look(AGENT, lambda published, _: sweep_if_due(published, one.clock.wall()))
            assert one.published.head() == main
            assert one.published.git.line("rev-list", "--objects", "--all") == history
        assert killed
        monkeypatch.undo()
        assert await one.memory.look(AGENT, lambda published, _: sweep_if_due(published, one.clock.wall()))
        in_order(one)
        for half in one.published.repository.glob("objects/pack/*"):
            os.utime(half, (1, 1))
        await one.end_turn()
        names = [path.name for path in one.published.repository.glob("objects/pack/*")]
        assert [name for name in names if not name.startswith("pack-")] == []
