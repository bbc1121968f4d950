"""What `Database` promises: durable when it returns, one failure undoes itself only, and a full disk is a state."""

import asyncio
import errno
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lodger_daemon.store import setting_rows
from lodger_daemon.store.database import Database
from lodger_daemon.store.errors import (
    ConstraintViolated,
    OwnershipLost,
    StoreBusy,
    StoreClosed,
    StoreDamaged,
    StoreError,
    StoreFailed,
    StoreFull,
    StoreOwned,
    StoreTooNew,
)
from lodger_daemon.store.faults import translated
from lodger_daemon.store.schema import STEPS, Step
from lodger_daemon.store.writer import SOON_LIMIT
from support.store_rows import HandClock, open_database, wait_until


def put(key: str, value: str = "x"):
    return lambda connection: setting_rows.put(connection, key, value, 0.0)


def rows_on_disk(folder: Path) -> dict[str, str]:
    """As another process sees it."""
    with sqlite3.connect(folder / "lodger.db") as other:
        return dict(other.execute("SELECT key, value FROM settings ORDER BY key"))


async def test_what_write_returned_is_committed(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    await database.write(put("a"))
    assert rows_on_disk(tmp_path) == {"a": '"x"'}
    await database.aclose()


async def test_a_result_is_delivered_after_commit_only(tmp_path: Path) -> None:
    """A reader of its own connection sees every write that has returned, whatever group it was in."""
    database = open_database(tmp_path)

    async def write_and_look(name: str) -> bool:
        await database.write(put(name))
        return database.read_now(lambda connection: setting_rows.get(connection, name)) == "x"

    assert all(await asyncio.gather(*(write_and_look(f"k{number}") for number in range(200))))
    await database.aclose()


async def test_waiting_writes_share_a_transaction(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    gate, started = threading.Event(), threading.Event()
    first = asyncio.ensure_future(database.write(lambda connection: (started.set(), gate.wait(10))))
    await wait_until(started.is_set)
    later = [asyncio.ensure_future(database.write(put(f"k{number}"))) for number in range(50)]
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(first, *later)
    assert database.counts.commits == 2
    await database.aclose()


async def test_one_failing_write_does_not_undo_its_neighbours(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    gate, started = threading.Event(), threading.Event()

    def fail(connection: sqlite3.Connection) -> None:
        put("bad")(connection)
        raise LookupError("mine")

    blocker = asyncio.ensure_future(database.write(lambda connection: (started.set(), gate.wait(10))))
    await wait_until(started.is_set)
    waiters = [asyncio.ensure_future(database.write(write)) for write in (put("a"), fail, put("b"))]
    await asyncio.sleep(0)
    gate.set()
    await blocker
    results = await asyncio.gather(*waiters, return_exceptions=True)
    assert [type(result) for result in results] == [type(None), LookupError, type(None)]
    assert database.counts.commits == 2
    assert rows_on_disk(tmp_path) == {"a": '"x"', "b": '"x"'}
    await database.aclose()


async def test_a_trigger_that_aborts_fails_its_write_only(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    await database.write(
        lambda connection: connection.execute(
            "CREATE TRIGGER third BEFORE INSERT ON settings WHEN (SELECT count(*) FROM settings) = 2 "
            "BEGIN SELECT RAISE(ABORT, 'no third row'); END"
        )
    )
    results = await asyncio.gather(*(database.write(put(f"k{n}")) for n in range(3)), return_exceptions=True)
    assert [str(result) for result in results] == ["None", "None", "The store refused a change: no third row."]
    assert isinstance(results[2], ConstraintViolated)
    assert list(rows_on_disk(tmp_path)) == ["k0", "k1"]
    await database.aclose()


async def test_cancelling_the_waiter_does_not_undo_the_write(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    gate = threading.Event()
    first = asyncio.ensure_future(database.write(lambda connection: gate.wait(10)))
    second = asyncio.ensure_future(database.write(put("a")))
    await asyncio.sleep(0)
    second.cancel()
    gate.set()
    await first
    await database.aclose()
    assert second.cancelled()
    assert list(rows_on_disk(tmp_path)) == ["a"]


async def test_writes_nobody_waits_for_are_written_in_order_before_later_ones(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    for number in range(300):
        assert database.write_soon(put("last", str(number)))
    await database.write(lambda connection: None)
    assert rows_on_disk(tmp_path) == {"last": '"299"'}
    await database.aclose()


async def test_writes_nobody_waits_for_need_no_other_write(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    database.write_soon(put("a"))
    await wait_until(lambda: "a" in rows_on_disk(tmp_path))
    await database.aclose()


async def test_closing_writes_what_waits(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    database.write_soon(put("a"))
    await database.aclose()
    await database.aclose()
    assert list(rows_on_disk(tmp_path)) == ["a"]
    with pytest.raises(StoreClosed):
        await database.write(put("b"))
    with pytest.raises(StoreClosed):
        await database.read(lambda connection: None)
    assert database.write_soon(put("c")) is False


async def test_too_many_unawaited_writes_are_dropped_and_counted(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    gate = threading.Event()
    started = threading.Event()
    blocker = asyncio.ensure_future(database.write(lambda connection: (started.set(), gate.wait(10))))
    await wait_until(started.is_set)
    kept = [database.write_soon(put("k")) for _ in range(SOON_LIMIT + 3)]
    gate.set()
    await blocker
    assert kept == [True] * SOON_LIMIT + [False] * 3
    assert database.counts.soon_dropped == 3
    await database.aclose()


async def test_a_failing_unawaited_write_is_counted(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    database.write_soon(lambda connection: connection.execute("INSERT INTO settings VALUES ('', 'null', 0)"))
    database.write_soon(put("a"))
    await database.write(lambda connection: None)
    assert (database.counts.soon_failed, list(rows_on_disk(tmp_path))) == (1, ["a"])
    assert "CHECK" in database.counts.last_soon_error
    await database.aclose()


def limit_pages(more: int):
    def set_limit(connection: sqlite3.Connection) -> None:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages + more}")

    return set_limit


async def test_a_full_disk_is_a_state_that_ends_by_itself(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    await database.write(limit_pages(2))
    small = database.write(put("small"))
    large = database.write(put("large", "x" * 100_000))
    results = await asyncio.gather(small, large, return_exceptions=True)
    assert [type(result) for result in results] == [type(None), StoreFull]
    assert "Free some space" in str(results[1])
    await database.write(limit_pages(1000))
    await database.write(put("large", "x" * 100_000))
    assert list(rows_on_disk(tmp_path)) == ["large", "small"]
    assert not database.counts.full
    await database.aclose()


async def test_unawaited_rows_wait_for_space_in_their_order(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    await database.write(limit_pages(2))
    database.write_soon(put("k", "x" * 100_000))
    database.write_soon(put("k", "second"))
    with pytest.raises(StoreFull):
        await database.write(put("big", "y" * 100_000))
    assert database.counts.full
    assert rows_on_disk(tmp_path) == {}
    await database.write(limit_pages(1000))
    await database.write(lambda connection: None)
    assert rows_on_disk(tmp_path) == {"k": '"second"'}
    assert (database.counts.full, database.counts.soon_dropped) == (False, 0)
    await database.aclose()


async def test_a_full_disk_that_has_space_again_is_noticed_without_a_write(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    await database.write(put("a"))
    await database.write(limit_pages(0))
    with pytest.raises(StoreFull):
        await database.write(put("big", "y" * 100_000))
    assert database.counts.full
    await wait_until(lambda: not database.counts.full)
    await database.aclose()


async def test_read_and_read_now_never_wait_for_the_writer(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    await database.write(put("a", "before"))
    gate = threading.Event()
    written = threading.Event()

    def slow(connection: sqlite3.Connection) -> None:
        put("a", "after")(connection)
        written.set()
        gate.wait(10)

    slow_write = asyncio.ensure_future(database.write(slow))
    await wait_until(written.is_set)
    assert database.read_now(lambda connection: setting_rows.get(connection, "a")) == "before"
    assert await database.read(lambda connection: setting_rows.get(connection, "a")) == "before"
    gate.set()
    await slow_write
    assert database.read_now(lambda connection: setting_rows.get(connection, "a")) == "after"
    await database.aclose()


async def test_readers_cannot_write(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    with pytest.raises(Exception, match="readonly"):
        await database.read(put("a"))
    with pytest.raises(Exception, match="readonly"):
        database.read_now(put("a"))
    await database.aclose()


async def test_a_second_daemon_is_refused_and_told_who_runs(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    with pytest.raises(StoreOwned) as refusal:
        open_database(tmp_path)
    assert "Another Lodger daemon (process " in str(refusal.value)
    await database.aclose()
    second = open_database(tmp_path)
    await second.aclose()


async def test_r9_an_owner_that_was_replaced_cannot_write(tmp_path: Path) -> None:
    """The lock file was lost while the first slept; the second took over."""
    first = open_database(tmp_path)
    (tmp_path / "daemon.lock").unlink()
    second = open_database(tmp_path)
    with pytest.raises(OwnershipLost):
        await first.write(put("stale"))
    first.write_soon(put("stale"))
    await second.write(put("mine"))
    await first.aclose()
    assert list(rows_on_disk(tmp_path)) == ["mine"]
    await second.aclose()


def test_a_damaged_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "lodger.db").write_bytes(b"not a database at all" * 100)
    with pytest.raises(StoreDamaged, match="Nothing was changed"):
        open_database(tmp_path)
    assert (tmp_path / "lodger.db").read_bytes().startswith(b"not a database")


def test_a_newer_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "lodger.db") as other:
        other.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreTooNew, match="Update Lodger"):
        open_database(tmp_path)


async def test_a_file_that_is_behind_is_migrated_and_keeps_its_rows(tmp_path: Path) -> None:
    old = open_database(tmp_path)
    await old.write(put("a"))
    await old.aclose()
    steps = (*STEPS, Step("next", ("CREATE TABLE extra (id INTEGER PRIMARY KEY) STRICT",)))
    new = Database.open(tmp_path / "lodger.db", clock=HandClock(), steps=steps)
    await new.write(lambda connection: connection.execute("INSERT INTO extra VALUES (1)"))
    assert new.read_now(lambda connection: connection.execute("PRAGMA user_version").fetchone()) == (len(steps),)
    await new.aclose()
    assert list(rows_on_disk(tmp_path)) == ["a"]


def test_a_failing_migration_leaves_the_old_version(tmp_path: Path) -> None:
    asyncio.run(open_database(tmp_path).aclose())
    steps = (*STEPS, Step("next", ("CREATE TABLE extra (id INTEGER) STRICT", "CREATE NONSENSE")))
    with pytest.raises(Exception, match="syntax error"):
        Database.open(tmp_path / "lodger.db", clock=HandClock(), steps=steps)
    with sqlite3.connect(tmp_path / "lodger.db") as other:
        assert other.execute("PRAGMA user_version").fetchone() == (len(STEPS),)
        assert other.execute("SELECT name FROM sqlite_schema WHERE name = 'extra'").fetchall() == []


def test_opening_a_current_file_imports_no_heavy_module(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys, pathlib\n"
        "from lodger_daemon.store.database import Database\n"
        "from lodger_daemon.system_clock import SystemClock\n"
        "for _ in range(2):\n"
        "    database = Database.open(pathlib.Path(sys.argv[1]) / 'lodger.db', clock=SystemClock())\n"
        "    asyncio.run(database.aclose())\n"
        "print(sorted({'sqlite_utils', 'click', 'pydantic', 'httpcore', 'httpx'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_the_file_is_private(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    asyncio.run(database.aclose())


async def test_a_database_that_another_program_holds_is_busy_and_then_is_not(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    await database.write(lambda connection: connection.execute("PRAGMA busy_timeout = 20"))
    other = sqlite3.connect(tmp_path / "lodger.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert database.write_soon(put("soon"))
    with pytest.raises(StoreBusy, match="Another program holds"):
        await database.write(put("a"))
    other.execute("ROLLBACK")
    other.close()
    await database.write(put("a"))
    assert list(rows_on_disk(tmp_path)) == ["a", "soon"]
    await database.aclose()


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreFailed, match="Check the disk"):
        Database.open(tmp_path / "file" / "lodger.db", clock=HandClock())


def test_a_first_start_that_fails_leaves_an_empty_file_that_opens_later(tmp_path: Path) -> None:
    steps = (*STEPS, Step("next", ("CREATE NONSENSE",)))
    with pytest.raises(StoreFailed, match="syntax error"):
        Database.open(tmp_path / "lodger.db", clock=HandClock(), steps=steps)
    asyncio.run(open_database(tmp_path).aclose())


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.ENOSPC, StoreFull), (errno.EDQUOT, StoreFull), (errno.EIO, StoreFailed)]
)
def test_errors_of_the_system(number: int, kind: type[StoreError]) -> None:
    assert type(translated(OSError(number, "words"), Path("/nowhere/lodger.db"))) is kind
