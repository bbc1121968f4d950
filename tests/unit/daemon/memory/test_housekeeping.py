"""A published repository that has grown loose is packed beside the turns, under its lock, and nothing is lost."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lodger_daemon.memory.contract import SyncOutcome
from lodger_daemon.memory.housekeeping import needs_packing
from support.git_host_server import running_git_host
from support.memory_conflicts import in_order
from support.memory_machines import AGENT, CARD, Machine, note, running_machine
from support.plain_boxes import agent_git

BATCHES, FILES = 22, 90
"""So few at once that they are unpacked, each into a file of its own; enough that 20 of them lie where loose ones are
counted."""


def loose(machine: Machine) -> int:
    return int(machine.published.git.line("count-objects").split()[0])


async def many_files(machine: Machine) -> None:
    for batch in range(BATCHES):
        commit_files(machine, f"notes-{batch}", FILES)
        assert (await machine.bring_in()).moved


def commit_files(machine: Machine, folder: str, count: int) -> None:
    for number in range(count):
        path = machine.checkout / folder / f"n{number}.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text(note(f"{folder} {number}"))
    agent_git(machine.checkout, "add", "-A")
    agent_git(machine.checkout, "commit", "-q", "--no-verify", "-m", "many")


def watching(machine: list[Machine], seen: list[tuple[str, bool]]) -> Callable[[str], None]:
    def seam(name: str) -> None:
        if name.endswith("packing objects"):
            fd = os.open(machine[0].published.folder / "lock", os.O_RDWR)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                seen.append((name, False))
            except BlockingIOError:
                seen.append((name, True))
            finally:
                os.close(fd)

    return seam


@pytest.mark.timeout(240)
async def test_loose_objects_are_packed_under_the_lock_and_all_are_there(tmp_path: Path) -> None:
    seen: list[tuple[str, bool]] = []
    made: list[Machine] = []
    with running_git_host(tmp_path / "hub") as hub:
        one = Machine(tmp_path / "a", hub, watching(made, seen))
        made.append(one)
        try:
            await one.memory.prepare(AGENT, CARD)
            await one.end_turn()
            assert seen == []
            await many_files(one)
            objects, text = loose(one), await one.memory.compiled(AGENT)
            assert needs_packing(one.published)
            assert (await one.end_turn()).outcome is SyncOutcome.PUSHED
            assert seen == [("before packing objects", True), ("after packing objects", True)]
            assert loose(one) < 50 < objects
            assert not needs_packing(one.published)
            # The git that stays and answers what objects hold goes on with packs that came after its start.
            one.memory.repository(AGENT, None).room._compiled = None
            assert await one.memory.compiled(AGENT) == text
            commit = one.commit("fact.md", note("blue"))
            assert (await one.bring_in()).head == commit
            assert (await one.end_turn()).outcome is SyncOutcome.PUSHED
            assert len(seen) == 2
            assert hub.host.head(AGENT) == commit
            in_order(one)
        finally:
            await one.memory.aclose()


async def test_what_comes_in_by_the_hundred_stays_packed(tmp_path: Path) -> None:
    async with running_machine(tmp_path / "a") as one:
        before = loose(one)
        commit_files(one, "notes", 120)
        assert (await one.bring_in()).moved
        assert loose(one) == before
        assert "notes/n119.md" in (await one.memory.compiled(AGENT)).text
        in_order(one)


async def test_what_a_killed_git_has_left_half_written_goes_after_a_day(tmp_path: Path) -> None:
    async with running_machine(tmp_path / "a") as one:
        objects = one.published.repository / "objects"
        day_ago = one.clock.wall() - 25 * 3600
        for old in (objects / "pack" / "tmp_pack_old", objects / "tmp_obj_old"):
            old.write_bytes(b"half")
            os.utime(old, (day_ago, day_ago))
        (objects / "pack" / "tmp_pack_new").write_bytes(b"half")
        packs = sorted(path.name for path in objects.glob("pack/pack-*"))
        assert (await one.end_turn()).outcome is SyncOutcome.SKIPPED
        assert sorted(path.name for path in objects.glob("**/tmp_*")) == ["tmp_pack_new"]
        assert sorted(path.name for path in objects.glob("pack/pack-*")) == packs


async def test_packing_that_fails_is_not_tried_at_every_turn(tmp_path: Path) -> None:
    one = Machine(tmp_path / "a", None)
    try:
        await one.memory.prepare(AGENT, CARD)
        objects = one.published.repository / "objects"
        for name in ("00", "40", "80", "c0"):
            (objects / name).mkdir(exist_ok=True)
            for number in range(8):
                # Not objects: a repository that git has trouble with.
                (objects / name / f"{number:038x}").write_bytes(b"no object")
        assert needs_packing(one.published)
        assert (await one.end_turn()).outcome is SyncOutcome.SKIPPED
        assert one.memory.repository(AGENT, None).room._no_packing_before > 0
        commit = one.commit("fact.md", note("blue"))
        assert (await one.bring_in()).head == commit
        assert (await one.end_turn()).outcome is SyncOutcome.SKIPPED
    finally:
        await one.memory.aclose()
