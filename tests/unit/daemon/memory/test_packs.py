"""What is too much for one pack goes into a box in parts, and comes out as the same memory. Real git."""

import random
import subprocess
from pathlib import Path

import pytest

from lodger_daemon.memory import packs
from lodger_daemon.memory.contract import SyncOutcome
from lodger_daemon.memory.packs import part_pack, parts_of, whole_pack
from lodger_tools.box.contract import RunProgram
from support.git_host_server import RunningHost
from support.memory_conflicts import apart, heard, in_order
from support.memory_machines import AGENT, Machine, note, running_machine
from support.plain_boxes import PlainBoxes, agent_environment, agent_git

PART = 4000
TEXT_BYTES = 1200
"""A few files are a part."""


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Small parts; how much was sent into a box at once, of what comes in packs."""
    monkeypatch.setattr(packs, "PART_BYTES", PART)
    sizes: list[int] = []
    run = PlainBoxes.run

    async def noting(self, key, call, on_output=None):  # type: ignore[no-untyped-def]
        if isinstance(call.operation, RunProgram) and call.operation.stdin.startswith(b"PACK"):
            sizes.append(len(call.operation.stdin))
        return await run(self, key, call, on_output)

    monkeypatch.setattr(PlainBoxes, "run", noting)
    return sizes


def write_many(machine: Machine, folder: str, count: int) -> None:
    for number in range(count):
        machine.commit(f"{folder}/n{number}.md", note(dense(f"{folder} {number}")))


def unpack(repository: Path, pack: bytes) -> None:
    argv = ["git", "-C", str(repository), "unpack-objects", "-q"]
    subprocess.run(argv, input=pack, env=agent_environment(), check=True)


def dense(seed: str) -> str:
    """What compression makes half as long and no shorter."""
    return random.Random(seed).randbytes(TEXT_BYTES // 2).hex()


async def test_a_new_checkout_and_a_far_step_come_in_parts(tmp_path: Path, hub: RunningHost, sent: list[int]) -> None:
    async with running_machine(tmp_path / "a", hub) as one, running_machine(tmp_path / "b", hub, founded=False) as two:
        write_many(one, "first", 20)
        assert (await one.end_turn()).outcome is SyncOutcome.PUSHED
        sent.clear()
        await two.memory.prepare(AGENT, None)
        assert len(sent) > 5
        assert max(sent) <= PART + 100
        write_many(one, "second", 20)
        assert (await one.end_turn()).outcome is SyncOutcome.PUSHED
        sent.clear()
        await heard(two, hub)
        assert len(sent) > 5
        assert max(sent) <= PART + 100
        assert agent_git(two.checkout, "rev-parse", "main") == one.published.head()
        assert (two.checkout / "second" / "n19.md").exists()
        in_order(one, two)


async def test_a_checkout_that_lost_its_way_amid_the_parts_is_finished(
    tmp_path: Path, hub: RunningHost, sent: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_machine(tmp_path / "a", hub) as one, running_machine(tmp_path / "b", hub, founded=False) as two:
        write_many(one, "first", 20)
        assert (await one.end_turn()).outcome is SyncOutcome.PUSHED
        run = PlainBoxes.run

        async def breaking(self, key, call, on_output=None):  # type: ignore[no-untyped-def]
            self.broken = len(sent) == 3
            return await run(self, key, call, on_output)

        sent.clear()
        with monkeypatch.context() as breaks:
            breaks.setattr(PlainBoxes, "run", breaking)
            await two.memory.prepare(AGENT, None)
        two.boxes.broken = False
        assert not (two.checkout / "MEMORY.md").exists()
        report = await two.bring_in()
        assert "made again from published" in report.text
        in_order(one, two)


async def test_the_other_side_of_a_conflict_comes_in_parts(tmp_path: Path, hub: RunningHost, sent: list[int]) -> None:
    changes = [(f"n{number}.md", note(dense(f"theirs {number}")), note("ours")) for number in range(12)]
    async with apart(tmp_path, hub, *changes) as (one, two):
        assert len(sent) > 5
        assert max(sent) <= PART + 100
        assert agent_git(two.checkout, "rev-parse", "refs/lodger/theirs") == one.published.head()
        assert agent_git(two.checkout, "show", "refs/lodger/theirs:n7.md").endswith(dense("theirs 7"))


async def test_parts_hold_what_the_whole_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_machine(tmp_path / "a") as one:
        write_many(one, "first", 20)
        await one.bring_in()
        head = one.published.head()
        assert head is not None
        assert whole_pack(one.published, (head,), ()) is not None
        monkeypatch.setattr(packs, "PART_BYTES", PART)
        assert whole_pack(one.published, (head,), ()) is None
        agent_git(tmp_path, "init", "-q", "--bare", "other")
        for part in parts_of(one.published, (head,), ()):
            pack = part_pack(one.published, part)
            unpack(tmp_path / "other", pack)
        listed = agent_git(tmp_path / "other", "rev-list", "--objects", head)
        assert listed == one.published.git.line("rev-list", "--objects", head)
