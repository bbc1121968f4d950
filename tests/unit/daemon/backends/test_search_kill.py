"""The search index is killed while it is made; the next one to open it finds everything."""

import random
import signal
import subprocess
import sys
from pathlib import Path

from lodger_daemon.backends.local.search import HistorySearch, Wanted
from lodger_daemon.clock import WallTime
from lodger_daemon.identity import AgentId, ConversationKey, MessageId
from lodger_daemon.store import agent_rows, conversation_rows, message_rows
from lodger_daemon.store.message_rows import MessageKind, NewMessage
from lodger_daemon.turns.contract import AgentRecord
from lodger_tools.json_value import Json
from support.patience import LIMIT_S
from support.turn_parts import House

MESSAGES = 3_000
KILLS = 12
VICTIM = """
import asyncio, sys
from pathlib import Path
from lodger_daemon.backends.local import search
from lodger_daemon.store.database import Database
from lodger_daemon.system_clock import SystemClock

add = search._add

def told(rows, index):
    print("adding", flush=True)
    add(rows, index)

async def main(folder):
    database = Database.open(folder / "lodger.db", clock=SystemClock())
    search.BATCH, search._add = 20, told
    await search.HistorySearch(folder / "search.db", database, SystemClock()).catch_up()

asyncio.run(main(Path(sys.argv[1])))
"""


def kill_one(folder: Path, after: int) -> None:
    """Kill a process that makes the index, in the midst of its transaction of this number."""
    victim = subprocess.Popen([sys.executable, "-c", VICTIM, str(folder)], stdout=subprocess.PIPE)
    assert victim.stdout is not None
    for _ in range(after):
        victim.stdout.readline()
    victim.send_signal(signal.SIGKILL)
    victim.wait(LIMIT_S)
    victim.stdout.close()


async def test_an_index_killed_while_it_is_made_loses_nothing(tmp_path: Path) -> None:
    house = House(tmp_path)
    await house.open()
    key = ConversationKey(AgentId("agent-1"), conversation_rows.DEFAULT_CONVERSATION)
    agent = AgentRecord(key.agent_id, "A", "", "x/y", "", (), WallTime(0.0), WallTime(0.0))

    def fill(connection: object) -> None:
        agent_rows.insert(connection, agent)  # type: ignore[arg-type]  # a connection
        conversation_rows.ensure(connection, key, WallTime(1.0))  # type: ignore[arg-type]  # a connection
        for number in range(MESSAGES):
            content: dict[str, Json] = {"content": f"tea {number} " + "and words of all kinds " * 40}
            message = NewMessage(MessageId(f"m{number}"), MessageKind.USER, content, WallTime(number))
            message_rows.append(connection, key, message)  # type: ignore[arg-type]  # a connection

    await house.database.write(fill)
    await house.close()
    chance = random.Random(20_261_130)
    for _ in range(KILLS):
        kill_one(tmp_path, chance.randint(1, 20))
    await house.open()
    history = HistorySearch(tmp_path / "search.db", house.database, house.clock)
    before = None
    numbers: list[str] = []
    while page := await history.search(Wanted("tea", limit=100, before=before)):
        numbers += [one.message_id for one in page.found]
        before = page.next_before
        if before is None:
            break
    assert numbers == [f"m{number}" for number in reversed(range(MESSAGES))]
    await history.aclose()
    await house.close()
