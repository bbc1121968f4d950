"""R1 for the store: `kill -9` at seeded moments loses no acknowledged row and repeats none."""

import random
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

from lodger_daemon.store import event_rows, inbox_rows
from support.patience import LIMIT_S
from support.store_rows import KEY, HandClock, open_database

KILLS = 20

CHILD = """
import asyncio, pathlib, sys
from lodger_daemon.identity import AgentId, ClientMessageId, ConversationId, ConversationKey, TurnId
from lodger_daemon.inbox.core.items import CancelCause, NewItem
from lodger_daemon.store import event_rows, inbox_rows
from lodger_daemon.store.database import Database
from lodger_daemon.system_clock import SystemClock
from lodger_daemon.turns.contract import InputMessage, Submission

folder, round_number = pathlib.Path(sys.argv[1]), sys.argv[2]
key = ConversationKey(AgentId("agent-1"), ConversationId("conv-1"))

async def main():
    database = Database.open(folder / "lodger.db", lock=folder / "daemon.lock", clock=SystemClock())
    async def write(worker):
        number = 0
        while True:
            name = f"m-{round_number}-{worker}-{number}"
            message = InputMessage(ClientMessageId(name), "text", name)
            item = NewItem(Submission((message,)))
            result = await database.write(lambda c: inbox_rows.accept(c, key, item, "queued", 1.0))
            taken = result.item.item_number
            await database.write(lambda c: inbox_rows.cancel(c, key, taken, CancelCause.REMOVED, 2.0))
            block = await database.write(lambda c: event_rows.reserve_numbers(c, key, 1))
            print(name, block, flush=True)
            number += 1
    await asyncio.gather(write(0), write(1), write(2))

asyncio.run(main())
"""


def test_r1_kill_loses_and_repeats_nothing(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    moments = random.Random(seed)
    acknowledged: list[str] = []
    blocks: list[int] = []
    for round_number in range(KILLS):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path), str(round_number)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        # The child is killed after a random count of its acknowledgements, in the midst of the next writes.
        lines = [child.stdout.readline() for _ in range(moments.randint(1, 40))]
        child.send_signal(signal.SIGKILL)
        lines += child.stdout.read().splitlines(keepends=True)
        child.wait(LIMIT_S)
        child.stdout.close()
        whole = [line.split() for line in lines if line.endswith("\n")]
        acknowledged += [name for name, _ in whole]
        blocks += [int(block) for _, block in whole]
    with sqlite3.connect(tmp_path / "lodger.db") as check:
        assert check.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        stored = [name for (name,) in check.execute("SELECT client_message_id FROM inbox")]
    assert set(acknowledged) - set(stored) == set(), f"seed {seed}"
    assert len(stored) == len(set(stored)), f"seed {seed}"
    assert len(blocks) == len(set(blocks)), f"an event number was given twice, seed {seed}"
    assert len(acknowledged) >= KILLS


async def test_after_a_kill_numbers_go_on_behind_the_reserved_block(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    await database.write(lambda c: inbox_rows.accept(c, KEY, _item(), "queued", HandClock().wall()))
    assert await database.write(lambda c: event_rows.reserve_numbers(c, KEY, 100)) == 100
    await database.aclose()
    again = open_database(tmp_path)
    assert await again.write(lambda c: event_rows.reserve_numbers(c, KEY, 100)) == 200
    await again.aclose()


def _item():
    from lodger_daemon.inbox.core.items import NewItem
    from support.store_rows import submission

    return NewItem(submission("m-1"))
