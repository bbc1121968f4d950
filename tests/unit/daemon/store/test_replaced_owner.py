"""R9: a daemon that slept while another took over must not act when it wakes."""

import asyncio
import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

from lodger_daemon.store import setting_rows
from support.patience import LIMIT_S
from support.store_rows import open_database

OWNER = """
import asyncio, pathlib, sys
from lodger_daemon.store import setting_rows
from lodger_daemon.store.database import Database
from lodger_daemon.store.errors import OwnershipLost
from lodger_daemon.system_clock import SystemClock

folder = pathlib.Path(sys.argv[1])

async def main():
    database = Database.open(folder / "lodger.db", lock=folder / "daemon.lock", clock=SystemClock())
    number = 0
    while True:
        try:
            await database.write(lambda c: setting_rows.put(c, f"owner.{number}", True, 0.0))
        except OwnershipLost as lost:
            print(lost, flush=True)
            return
        print(number, flush=True)
        number += 1

asyncio.run(main())
"""


async def take_over(folder: Path) -> None:
    successor = open_database(folder)
    await successor.write(lambda c: setting_rows.put(c, "successor", True, 0.0))
    await successor.aclose()


def stop_between_writes(owner: "subprocess.Popen[str]", folder: Path) -> None:
    """Stop the owner where it holds no lock of SQLite's: stopped in the middle of a write it would keep everybody out,
    and nobody could take over at all."""
    assert owner.stdout is not None
    while True:
        owner.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, owner.pid, os.WSTOPPED)  # until then it may go on, and begin to write
        try:
            with contextlib.closing(sqlite3.connect(folder / "lodger.db", timeout=0, isolation_level=None)) as look:
                look.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError:
            owner.send_signal(signal.SIGCONT)
            owner.stdout.readline()


def test_r9_a_stopped_owner_writes_nothing_once_it_was_replaced(tmp_path: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "0\n"
        stop_between_writes(owner, tmp_path)
        # The lock is lost with its file; otherwise no second daemon would start at all.
        (tmp_path / "daemon.lock").unlink()
        asyncio.run(take_over(tmp_path))
        count = "SELECT count(*) FROM settings WHERE key LIKE 'owner.%'"
        with sqlite3.connect(tmp_path / "lodger.db") as check:
            before = check.execute(count).fetchone()
        owner.send_signal(signal.SIGCONT)
        *_, last_words = owner.stdout.read().splitlines()
        assert last_words.startswith("Another Lodger daemon has taken over (epoch 2, this one has 1).")
        assert owner.wait(LIMIT_S) == 0
        with sqlite3.connect(tmp_path / "lodger.db") as check:
            assert check.execute(count).fetchone() == before
    finally:
        owner.kill()
        owner.wait(LIMIT_S)
        if owner.stdout is not None:
            owner.stdout.close()
