"""What is on record of background writers of memory, on a real database."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from lodger_daemon.clock import WallTime
from lodger_daemon.identity import AgentId
from lodger_daemon.memory.core.writers import (
    FIRST_WAIT_S,
    LONGEST_WAIT_S,
    Ending,
    TranscriptPart,
    Writer,
    WriterId,
    WriterKind,
    WriterState,
    may_begin_at,
)
from lodger_daemon.store import memory_writer_rows as rows
from lodger_daemon.store.database import Database
from lodger_daemon.store.errors import ConstraintViolated, StateConflict
from support.store_rows import NOW, open_database

AGENT = AgentId("agent-1")
COMMIT = "a" * 40
FIRST = Writer(WriterId("one"), AGENT, WriterKind.REFLECTION, WriterState.CREATED, NOW, TranscriptPart(0, 7))


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = open_database(tmp_path)
    yield opened
    await opened.aclose()


async def begin(database: Database, writer: Writer) -> None:
    await database.write(lambda connection: rows.begin(connection, writer))


async def step(database: Database, writer: Writer, **changes) -> Writer:
    new = replace(writer, **changes)
    await database.write(lambda connection: rows.change(connection, new, writer.state))
    return new


async def mark(database: Database) -> int:
    return await database.read(lambda connection: rows.mark(connection, AGENT, WriterKind.REFLECTION))


async def test_a_record_comes_back_whole_and_only_a_merge_moves_the_mark(database: Database) -> None:
    await begin(database, FIRST)
    writer = await step(database, FIRST, state=WriterState.RUNNING, base=COMMIT)
    writer = await step(database, writer, state=WriterState.FINISHED, report="Noted \udc80.")
    writer = await step(database, writer, state=WriterState.MERGING, tip=COMMIT)
    assert await mark(database) == 0
    writer = await step(
        database, writer, state=WriterState.CONFLICTED, paths=("a.md", "ü.md"), reason="differs", ended_at=NOW
    )
    assert await mark(database) == 0
    kept = await database.read(lambda connection: rows.kept(connection, AGENT, WriterKind.REFLECTION))
    assert kept == (replace(writer, report="Noted ?."),)
    writer = await step(database, writer, state=WriterState.MERGING, ended_at=None, paths=())
    assert await database.read(rows.open_ones) == (replace(writer, report="Noted ?."),)
    await step(database, writer, state=WriterState.MERGED, head=COMMIT, ended_at=NOW)
    assert await mark(database) == 7
    endings = await database.read(lambda connection: rows.endings(connection, AGENT, WriterKind.REFLECTION))
    assert endings == (Ending(WriterState.MERGED, NOW),)


async def test_one_of_a_kind_is_open_for_each_agent(database: Database) -> None:
    await begin(database, FIRST)
    with pytest.raises(ConstraintViolated):
        await begin(database, replace(FIRST, id=WriterId("two")))
    await begin(database, replace(FIRST, id=WriterId("three"), kind=WriterKind.REPAIR))
    await begin(database, replace(FIRST, id=WriterId("four"), agent_id=AgentId("agent-2")))


async def test_no_state_is_left_for_one_that_it_does_not_lead_to(database: Database) -> None:
    await begin(database, FIRST)
    for illegal in (WriterState.FINISHED, WriterState.UNCHANGED, WriterState.RESCUED):
        with pytest.raises(ConstraintViolated):
            ended = None if illegal is WriterState.FINISHED else NOW
            await step(database, FIRST, state=illegal, base=COMMIT, tip=COMMIT, ended_at=ended)
    gone = await step(database, FIRST, state=WriterState.ABANDONED, reason="no box", ended_at=NOW)
    with pytest.raises(ConstraintViolated):
        await step(database, gone, state=WriterState.RUNNING, base=COMMIT, ended_at=None)
    with pytest.raises(StateConflict):
        await step(database, FIRST, state=WriterState.RUNNING, base=COMMIT)


async def test_the_mark_never_goes_back(database: Database) -> None:
    for name, through in (("one", 9), ("two", 4)):
        writer = replace(FIRST, id=WriterId(name), reads=TranscriptPart(0, through))
        await begin(database, writer)
        writer = await step(database, writer, state=WriterState.RUNNING, base=COMMIT)
        writer = await step(database, writer, state=WriterState.FINISHED)
        await step(database, writer, state=WriterState.UNCHANGED, ended_at=NOW)
        assert await mark(database) == 9


async def test_what_may_still_be_merged_is_never_forgotten(database: Database) -> None:
    await begin(database, FIRST)
    await step(database, FIRST, state=WriterState.ABANDONED, ended_at=NOW)
    kept = replace(FIRST, id=WriterId("kept"))
    await begin(database, kept)
    kept = await step(database, kept, state=WriterState.RUNNING, base=COMMIT)
    await step(database, kept, state=WriterState.RESCUED, ended_at=NOW)
    assert await database.write(lambda connection: rows.forget(connection, WallTime(NOW + 1))) == 1
    left = await database.read(lambda connection: rows.of_agent(connection, AGENT, 10))
    assert [writer.id for writer in left] == ["kept"]


def test_the_wait_doubles_with_each_failure_since_the_last_success() -> None:
    failed, merged = Ending(WriterState.RESCUED, NOW), Ending(WriterState.MERGED, NOW)
    assert may_begin_at(()) is None
    assert may_begin_at((merged, failed, failed)) is None
    assert may_begin_at((failed,)) == NOW + FIRST_WAIT_S
    assert may_begin_at((failed, failed, failed, merged, failed)) == NOW + 4 * FIRST_WAIT_S
    assert may_begin_at((failed,) * 40) == NOW + LONGEST_WAIT_S
