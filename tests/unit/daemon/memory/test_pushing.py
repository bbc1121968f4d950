"""What a remote does not take in one push it is given in steps; what it does not take at all stays, and is said. Real
git."""

import os
import random
from pathlib import Path

import pytest

from lodger_daemon.memory import pushing
from lodger_daemon.memory.contract import SyncOutcome
from lodger_daemon.memory.git import Done, Git
from lodger_daemon.memory.published import REMOTE
from lodger_daemon.memory.pushing import next_step
from support.git_host_server import RunningHost
from support.memory_conflicts import in_order
from support.memory_machines import AGENT, Machine, note, running_machine
from support.plain_boxes import agent_git

MOST = 20_000
PART = 6_000
FILE = 2_000


def dense(seed: object, size: int = FILE) -> str:
    """What compression makes half as long and no shorter."""
    return random.Random(str(seed)).randbytes(size).hex()


def limit_pushes(hub: RunningHost, most: int) -> None:
    agent_git(hub.host._repositories.path(AGENT), "config", "receive.maxInputSize", str(most))


@pytest.fixture
def pushes(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """How each push ended."""
    monkeypatch.setattr(pushing, "PART_BYTES", PART)
    ended: list[int | None] = []
    attempt = Git.attempt

    def noting(self: Git, *argv: str, **options: object) -> Done:
        done = attempt(self, *argv, **options)  # type: ignore[arg-type]
        if argv[0] == "push":
            ended.append(done.exit_code)
        return done

    monkeypatch.setattr(Git, "attempt", noting)
    return ended


async def grown(machine: Machine, hub: RunningHost, commits: int) -> str | None:
    """A machine that was level, and has since made more than one push may hold."""
    assert (await machine.end_turn()).outcome is SyncOutcome.PUSHED
    limit_pushes(hub, MOST)
    for number in range(commits):
        machine.commit(f"notes/n{number}.md", note(dense(number)))
    assert (await machine.bring_in()).moved
    return machine.published.head()


async def test_more_than_one_push_may_hold_goes_in_steps(
    tmp_path: Path, hub: RunningHost, pushes: list[int | None]
) -> None:
    async with running_machine(tmp_path / "a", hub) as one:
        head = await grown(one, hub, 20)
        pushes.clear()
        assert (await one.end_turn()).outcome is SyncOutcome.PUSHED
        assert pushes[0] not in (0, None)
        assert set(pushes[1:]) == {0}
        assert len(pushes) > 6
        assert hub.host.head(AGENT) == one.published.ref(REMOTE) == head
        in_order(one)


async def test_a_first_push_goes_in_steps_too(tmp_path: Path, hub: RunningHost, pushes: list[int | None]) -> None:
    async with running_machine(tmp_path / "a", hub) as one:
        for number in range(20):
            one.commit(f"notes/n{number}.md", note(dense(number)))
        limit_pushes(hub, MOST)
        assert (await one.end_turn()).outcome is SyncOutcome.PUSHED
        assert len(pushes) > 6
        assert hub.host.head(AGENT) == one.published.head()


async def test_a_step_that_is_too_large_stays_here_and_is_said(
    tmp_path: Path, hub: RunningHost, pushes: list[int | None]
) -> None:
    async with running_machine(tmp_path / "a", hub) as one:
        await grown(one, hub, 5)
        small = one.published.head()
        one.commit("large.md", note(dense("large", 2 * MOST)))
        one.commit("after.md", note("after"))
        status = await one.end_turn()
        assert (status.outcome, "pack exceeds maximum allowed size" in status.detail) == (SyncOutcome.PUSH_FAILED, True)
        # All that it takes it has, and what it does not take is in every prompt here all the same.
        assert hub.host.head(AGENT) == one.published.ref(REMOTE) == small
        assert "2 commits are safe on this machine but not yet elsewhere" in one.memory.reminders(AGENT)[0]
        assert "after.md" in (await one.memory.compiled(AGENT)).text
        limit_pushes(hub, 0)
        assert (await one.end_turn()).outcome is SyncOutcome.PUSHED
        assert hub.host.head(AGENT) == one.published.head()


async def test_a_push_that_was_overtaken_amid_its_steps_fetches_and_goes_on(
    tmp_path: Path, hub: RunningHost, pushes: list[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_machine(tmp_path / "a", hub) as one, running_machine(tmp_path / "b", hub, founded=False) as two:
        await one.end_turn()
        await two.memory.prepare(AGENT, None)
        limit_pushes(hub, MOST)
        for number in range(12):
            one.commit(f"notes/n{number}.md", note(dense(number)))
        step = next_step
        asked: list[str] = []

        def overtaking(published, known, commit):  # type: ignore[no-untyped-def]
            asked.append(commit)
            if len(asked) == 3:
                head = hub.host.head(AGENT)
                two.published.git.run("fetch", "-q", str(hub.host._repositories.path(AGENT)), "main")
                made = two.published.git.line("commit-tree", f"{head}^{{tree}}", "-p", str(head), "-m", "faster")
                two.published.git.run("push", "-q", str(hub.host._repositories.path(AGENT)), f"{made}:refs/heads/main")
            return step(published, known, commit)

        monkeypatch.setattr(pushing, "next_step", overtaking)
        assert (await one.end_turn()).outcome is SyncOutcome.PUSHED
        assert hub.host.head(AGENT) == one.published.head()
        assert "faster" in one.published.git.line("log", "--format=%s")
        in_order(one)


SLOW = ("-c", "alias.slow=!sleep 1; echo done", "slow")


async def test_a_git_that_carries_something_is_waited_for_longer(tmp_path: Path) -> None:
    async with running_machine(tmp_path / "a") as one:
        git = one.published.git
        assert git.attempt(*SLOW, limit_s=0.2, moves=lambda: True).stdout == b"done\n"
        assert git.attempt(*SLOW, limit_s=0.2, moves=lambda: False).exit_code is None
        assert git.attempt(*SLOW, limit_s=0.2).exit_code is None


async def test_only_a_pack_that_grows_counts_as_carrying(tmp_path: Path) -> None:
    async with running_machine(tmp_path / "a") as one:
        assert not one.published._pack_grows()
        half = one.published.repository / "objects" / "pack" / "tmp_pack_half"
        half.parent.mkdir(exist_ok=True)
        half.write_bytes(b"half")
        assert one.published._pack_grows()
        still = one.clock.wall() - 60
        os.utime(half, (still, still))
        assert not one.published._pack_grows()
