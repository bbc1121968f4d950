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
from lodger_daemon.memory.core.commits import new_commit
from lodger_daemon.memory.core.pack import make_pack, object_id
from lodger_daemon.memory.core.writers import WriterId, WriterState
from lodger_daemon.memory.importing import NotValid, import_pack
from lodger_daemon.memory.published import FETCHED
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


async def test_a_writer_merges_nothing_that_its_tree_did_not_begin_with(here: WriterMachine) -> None:
    """As a parent it would be merged too, and a conflict be decided without changing a file."""
    base, kept, published = *await left_aside(here), here.machine.published
    with published.lock():
        tree = published.commit(base).tree
        merging = [tree_commit(tree, parents) for parents in ((base, kept), (kept,), (base, tree))]
        lone = [tree_commit(tree, parents) for parents in ((base,), ())]
        for raw, taken in [*((raw, False) for raw in merging), *((raw, True) for raw in lone)]:
            tip = object_id("commit", raw)
            result = take_in(published, WriterId("reflection-1-x"), make_pack([("commit", raw)]), base, tip, 1)
            assert isinstance(result, TakenIn) is taken, raw


async def test_what_a_box_sends_that_is_published_already_ends_a_writer(here: WriterMachine) -> None:
    """An error would be tried again for ever, and no other writer of the kind could begin."""
    base, kept, published = *await left_aside(here), here.machine.published
    with published.lock():
        tree = published.commit(base).tree
        theirs = tree_commit(tree, (base,))
        newest = tree_commit(tree, (object_id("commit", theirs),))
        published.write([("commit", theirs), ("commit", newest)])
        fetched = object_id("commit", newest)
        published.set_ref(FETCHED, fetched)
        main = published.reader.read(base)
        cases = [(base, (), True), (base, (main,), True), (kept, (main,), False), (tree, (), False)]
        cases += [(fetched, (main, ("commit", newest)), False)]
        cases += [(object_id("commit", theirs), (("commit", theirs),), False)]
        for tip, sent, taken in cases:
            result = take_in(published, WriterId("reflection-1-x"), make_pack(sent), base, tip, 1)
            assert isinstance(result, TakenIn) is taken, (tip, len(sent))


async def test_a_branch_that_names_no_commit_is_told_as_not_valid(here: WriterMachine) -> None:
    published = here.machine.published
    with published.lock():
        main = published.head()
        assert main is not None
        result = import_pack(published, make_pack(()), published.commit(main).tree, 1)
        assert isinstance(result, NotValid)
        assert published.head() == main


async def left_aside(here: WriterMachine) -> tuple[str, str]:
    """What a writer's tree begins with, and a commit that is kept beside main."""
    opened = await here.open()
    base = agent_git(opened.tree, "rev-parse", "HEAD")
    write_in(opened, "kept.md", note("not to be merged"))
    ended = await here.writers.cancel(opened.id, "x")
    assert ended.tip is not None
    return base, ended.tip


def tree_commit(tree: str, parents: tuple[str, ...]) -> bytes:
    who = b"A <a@lodger.invalid> 1 +0000"
    return new_commit(tree, parents, who, who, "x\n")
