"""A background writer in a real box, as the daemon makes it: its tree is all it may write, and there is no network."""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lodger_daemon.memory.core.writers import WriterKind, WriterState
from lodger_daemon.paths import Paths
from support.memory_machines import AGENT, note
from support.real_boxes import workspace_for_tests
from support.writer_daemon import WriterDaemon, writer_daemon
from support.writer_machines import at_rest, say


def places(folder: Path, workspace: Path) -> Paths:
    return Paths(folder / "config", folder / "state", workspace, Path.home())


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[WriterDaemon]:
    with workspace_for_tests() as workspace:
        async with writer_daemon(places(tmp_path, workspace)) as made:
            yield made
            for status in made.boxes.statuses():
                await made.boxes.end(status.key)


async def test_it_reads_its_part_of_the_transcript_and_commits(here: WriterDaemon) -> None:
    await say(here.database, "the harbour is Ingrid's")
    opened = await here.writers.open(AGENT, WriterKind.REFLECTION, with_transcript=True)
    assert "the harbour is Ingrid's" in await here.does(opened, f"cat {opened.transcript}")
    await here.does(
        opened,
        "mkdir people && printf -- '---\\nname: ingrid\\ndescription: Who she is\\n---\\n\\nHas the harbour.\\n'"
        " >people/ingrid.md && git add -A && git commit -q -m 'Remember Ingrid' && git log --format=%an -1",
    )
    ended = await here.writers.done(opened.id, "Ingrid.")
    assert ended.state is WriterState.MERGED
    assert "Has the harbour." in await here.published("people/ingrid.md")
    assert not Path(opened.tree).parent.exists()
    assert opened.box not in [status.key for status in here.boxes.statuses()]


async def test_its_tree_is_all_it_may_write_and_there_is_no_network(here: WriterDaemon) -> None:
    await say(here.database, "a secret of nobody's")
    opened = await here.writers.open(AGENT, WriterKind.REFLECTION, with_transcript=True)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        connect = f"(exec 3<>/dev/tcp/127.0.0.1/{port})"
        # The control: what is tried works where nothing is in its way.
        control = await asyncio.create_subprocess_exec("bash", "-c", connect)
        assert await control.wait() == 0
        attempts = {
            "append to the transcript": f"echo x >>{opened.transcript}",
            "add to what it reads": f"touch {Path(str(opened.transcript)).parent}/x",
            "see the published repository": f"ls {here.paths.agents}/{AGENT}/published.git",
            "see the agent's checkout": f"ls {here.paths.agents}/{AGENT}/checkout/MEMORY.md",
            "see the database": f"head -c 1 {here.paths.database}",
            "write into the agent's workspace": f"touch {here.paths.workspace}/x",
            "write beside its tree": f"touch {Path(opened.tree).parent}/x && ls {Path(opened.tree).parent}/reads",
            "reach loopback": connect,
        }
        for name, attempt in attempts.items():
            assert (await here.runs(opened, attempt)).exit_code != 0, name
    for path in (f"{here.paths.agents}/{AGENT}/published.git", here.paths.database):
        assert Path(path).exists()
    assert (await here.writers.cancel(opened.id, "looked around")).state is WriterState.ABANDONED


async def test_what_a_writer_left_running_ends_before_its_work_is_gathered(here: WriterDaemon) -> None:
    opened = await here.writers.open(AGENT, WriterKind.REFLECTION)
    await here.does(opened, f"cat >left.md <<'END'\n{note('left uncommitted', 'left')}END")
    await here.does(opened, "setsid sh -c 'while :; do : >.git/index.lock; done' >/dev/null 2>&1 &")
    await here.does(opened, "until [ -e .git/index.lock ]; do :; done")
    assert (await here.writers.done(opened.id, "a")).state is WriterState.MERGED
    assert "left uncommitted" in await here.published("left.md")
    assert not Path(opened.tree).exists()


async def test_a_daemon_that_follows_keeps_what_the_writer_of_the_last_one_wrote(tmp_path: Path) -> None:
    with workspace_for_tests() as workspace:
        async with writer_daemon(places(tmp_path, workspace)) as first:
            opened = await first.writers.open(AGENT, WriterKind.REFLECTION)
            await first.does(
                opened, f"cat >a.md <<'END'\n{note('kept', 'a')}END\ngit add a.md && git commit -q -m a; sleep 600 &"
            )
        async with writer_daemon(places(tmp_path, workspace)) as second:
            await at_rest(second.writers)
            (writer,) = await second.writers.of(AGENT)
            assert (writer.state, writer.reason) == (WriterState.RESCUED, "the daemon ended while it ran")
            assert opened.box not in [status.key for status in second.boxes.statuses()]
            assert not Path(opened.tree).exists()
            assert (await second.writers.merge_again(writer.id)).state is WriterState.MERGED
            assert "kept" in await second.published("a.md")
            for status in second.boxes.statuses():
                await second.boxes.end(status.key)
