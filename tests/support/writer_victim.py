"""A daemon's memory with a background writer in a process of its own, to be killed.

Arguments: folder, file for the names of seams, and how many seams to pass before dying (0: never). Only seams from the
opening of the writer on count. A file `written` in the folder appears once the writer has committed.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from lodger_daemon.memory.core.writers import WriterKind
from support.memory_machines import AGENT, CARD, Machine, note
from support.writer_machines import WriterMachine, make_conversation, make_writers, open_database, write_in


async def main(folder: Path, record: Path, die_at: int) -> None:
    passed, armed = 0, False

    def seam(name: str) -> None:
        nonlocal passed
        if not armed:
            return
        passed += 1
        with record.open("a") as names:
            names.write(name + "\n")
        if passed == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    machine = Machine(folder, None, seam)
    database = open_database(machine)
    await machine.memory.prepare(AGENT, CARD)
    await make_conversation(database)
    here = WriterMachine(machine, database, make_writers(machine, database, seam))
    await here.say("a", "b")
    armed = True
    opened = await here.writers.open(AGENT, WriterKind.REFLECTION, with_transcript=True)
    write_in(opened, "learnt.md", note("Likes tea."))
    (folder / "written").touch()
    machine.commit("said.md", note("meanwhile"))
    await machine.bring_in()
    print((await here.writers.done(opened.id, "Noted the tea.")).state)
    armed = False
    await here.writers.aclose()
    await machine.memory.aclose()
    await database.aclose()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))
