"""G6 for background writers: kill -9 at every named seam loses nothing of theirs, leaves sound repositories and nothing
lying about, and what was not merged counts as unread."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lodger_daemon.memory.core.writers import KEPT, OPEN, Writer, WriterState
from support.memory_machines import AGENT, note
from support.plain_boxes import agent_git
from support.writer_machines import WriterMachine, at_rest, write_in, writer_machine

VICTIM = Path(__file__).parents[2] / "support" / "writer_victim.py"
NAMES = {
    "writer on record", "after making a writer's folders", "after making a writer's tree",
    "before noting that a writer is done", "after noting that a writer is done", "before naming a writer's commit",
    "after naming a writer's commit", "after taking in a writer's commits", "before merging a writer",
    "after merging a writer", "before moving refs", "after moving refs", "after noting how a writer ended",
    "before cleaning up after a writer", "before removing a writer's tree", "before unpacking", "after unpacking",
}  # fmt: skip


@pytest.mark.timeout(300)
async def test_g6_kill_at_every_named_seam_of_a_writer(tmp_path: Path) -> None:
    names = victim(tmp_path, 0)
    assert set(names) >= NAMES
    hit = []
    for name in dict.fromkeys(names):
        # The last time that a name comes up is the writer's, the first may be the agent's own import.
        at = len(names) - names[::-1].index(name)
        assert victim(tmp_path, at)[-1] == name
        hit.append(f"{name} ({at}): {await reborn(tmp_path / f'victim-{at}')}")
    print("seams hit:", *hit, sep="\n")


def victim(tmp_path: Path, die_at: int) -> list[str]:
    """The names of the seams it passed."""
    folder, record = tmp_path / f"victim-{die_at}", tmp_path / f"seams-{die_at}"
    argv = [sys.executable, str(VICTIM), str(folder), str(record), str(die_at)]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(VICTIM.parents[1])}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == (-signal.SIGKILL if die_at else 0), done.stderr
    return record.read_text().splitlines()


async def reborn(folder: Path) -> WriterState:
    async with writer_machine(folder, founded=False) as here:
        await here.writers.start()
        writer = await the_only_one(here)
        await is_in_order(here, writer, has_written=(folder / "written").exists())
        await the_next_one_works(here)
        return writer.state


async def the_only_one(here: WriterMachine) -> Writer:
    await at_rest(here.writers)
    (writer,) = await here.writers.of(AGENT)
    assert writer.state not in OPEN
    return writer


async def is_in_order(here: WriterMachine, writer: Writer, *, has_written: bool) -> None:
    git = here.machine.published.git
    assert here.machine.fsck() == ""
    if writer.state is WriterState.MERGED:
        assert "Likes tea." in git.run("show", "main:learnt.md").decode()
    elif has_written:
        # What it committed is kept, and counts as unread.
        assert writer.state is WriterState.RESCUED
        assert "Likes tea." in git.run("show", f"{writer.tip}:learnt.md").decode()
    else:
        assert writer.state is WriterState.ABANDONED
    assert await here.mark() == (2 if writer.state is WriterState.MERGED else 0)
    assert here.refs() == ([f"refs/lodger/writers/{writer.id}"] if writer.state in KEPT else [])
    assert here.folders() == []
    commits = git.line("rev-list", "--count", "main", "--", "learnt.md")
    assert commits == ("1" if writer.state is WriterState.MERGED else "0")


async def the_next_one_works(here: WriterMachine) -> None:
    opened = await here.open(asked=True)
    write_in(opened, "next.md", note("next"))
    assert (await here.writers.done(opened.id, "next")).state is WriterState.MERGED
    await here.machine.bring_in()
    await here.machine.end_turn()
    held = agent_git(here.machine.checkout, "ls-tree", "-r", "--name-only", "HEAD").split()
    assert "next.md" in held
    agent_git(here.machine.checkout, "fsck", "--full", "--strict")
