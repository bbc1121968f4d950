"""G1 and its neighbours for background writers: what is planted in a writer's tree runs nothing outside its box, stops
nothing, and leads no clean-up elsewhere."""

import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from attacks.memory.test_g1_planted_git import (
    ROWS,
    Planting,
    plain_git,
)
from lodger_daemon.memory.core.pack import make_pack
from lodger_daemon.memory.core.writers import WriterId, WriterState
from lodger_daemon.memory.work_tree_merge import TakenIn, take_in
from support.memory_machines import note
from support.plain_boxes import agent_git
from support.writer_machines import WriterMachine, write_in, writer_machine


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[WriterMachine]:
    async with writer_machine(tmp_path / "machine") as made:
        yield made


def planted(tmp_path: Path) -> tuple[Path, str]:
    """Where what runs tells of it, and a command that does."""
    marker, command = tmp_path / "marker", tmp_path / "planted.sh"
    command.write_text(f'#!/bin/sh\necho "${{IN_BOX:-outside}}" >>{marker}\n')
    command.chmod(0o755)
    return marker, str(command)


async def test_g1_what_is_planted_in_a_writers_tree_does_not_run_outside(tmp_path: Path, here: WriterMachine) -> None:
    marker, command = planted(tmp_path)
    for end in ("merged", "rescued"):
        opened = await here.open(asked=True)
        write_in(opened, f"{end}.md", note(end))
        for plant, _ in ROWS:
            plant(Planting(Path(opened.tree), command, "http://host.invalid"))
        (Path(opened.tree) / "left.md").write_text(note("left uncommitted", "left"))
        marker.unlink(missing_ok=True)
        plain_git(Path(opened.tree), "status")
        assert "outside" in marker.read_text()
        marker.unlink()
        ended = await (here.writers.done(opened.id, "x") if end == "merged" else here.writers.cancel(opened.id, "x"))
        assert ended.state is WriterState(end), ended.reason
        assert not marker.exists() or "outside" not in marker.read_text()
        assert here.folders() == []


async def test_a_tree_that_answers_nothing_is_kept_and_stops_nobody(here: WriterMachine) -> None:
    opened = await here.open()
    write_in(opened, "a.md", note("a"))
    branch = Path(opened.tree) / ".git/refs/heads/main"
    branch.unlink()
    os.mkfifo(branch)
    ended = await here.writers.done(opened.id, "x")
    assert (ended.state, ended.tip) == (WriterState.RESCUED, None)
    assert here.folders() == [opened.id]
    again = await here.open(asked=True)
    write_in(again, "b.md", note("b"))
    assert (await here.writers.done(again.id, "b")).state is WriterState.MERGED
    await here.writers.drop(opened.id)
    assert here.folders() == []


async def test_links_in_a_tree_are_not_merged_and_lead_no_clean_up_elsewhere(here: WriterMachine) -> None:
    opened = await here.open()
    tree = Path(opened.tree)
    (tree / "out.md").symlink_to(here.machine.checkout / "MEMORY.md")
    agent_git(tree, "add", "-A")
    agent_git(tree, "commit", "-q", "--no-verify", "-m", "a link")
    ended = await here.writers.done(opened.id, "x")
    assert (ended.state, "out.md" in ended.reason) == (WriterState.RESCUED, True)
    # As if it had got out of its box.
    subprocess.run(["rm", "-rf", str(tree)], check=True)  # noqa: ASYNC221
    tree.symlink_to(here.machine.checkout)
    (here.machine.checkout / "MEMORY.md").chmod(0o400)
    await here.writers.drop(opened.id)
    assert here.folders() == []
    assert (here.machine.checkout / "MEMORY.md").stat().st_mode & 0o777 == 0o400


async def test_a_commit_that_the_box_only_names_is_not_merged(here: WriterMachine) -> None:
    """Published holds commits that nobody let into main; a box that lies cannot have them merged by their names."""
    kept = await here.open()
    base = agent_git(kept.tree, "rev-parse", "HEAD")
    write_in(kept, "kept.md", note("not to be merged"))
    ended = await here.writers.cancel(kept.id, "x")
    assert ended.tip is not None
    published, nothing = here.machine.published, make_pack(())
    with published.lock():
        for named, taken in ((ended.tip, False), ("0" * 40, False), (base, True)):
            result = take_in(published, WriterId("reflection-1-x"), nothing, base, named, 1)
            assert isinstance(result, TakenIn) is taken, named
