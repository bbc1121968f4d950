"""A daemon's memory with a background writer in a process of its own, to be killed.

Arguments: folder, file for the names of seams, and how many seams to pass before dying (0: never). Only seams from the
opening of the writer on count. A file `written` in the folder appears once the writer has committed.
"""

import asyncio
import sys
from pathlib import Path

from lodger_daemon.memory.core.writers import WriterKind
from support.dying_seam import DyingSeam
from support.memory_machines import AGENT, CARD, Machine, note
from support.writer_machines import WriterMachine, make_conversation, make_writers, open_database, write_in


async def main(folder: Path, record: Path, die_at: int) -> None:
    seam = DyingSeam(record, die_at, counts=False)
    machine = Machine(folder, None, seam)
    database = open_database(machine)
    await machine.memory.prepare(AGENT, CARD)
    await make_conversation(database)
    here = WriterMachine(machine, database, make_writers(machine, database, seam))
    await here.say("a", "b")
    seam.counts = True
    opened = await here.writers.open(AGENT, WriterKind.REFLECTION, with_transcript=True)
    write_in(opened, "learnt.md", note("Likes tea."))
    (folder / "written").touch()
    machine.commit("said.md", note("meanwhile"))
    await machine.bring_in()
    print((await here.writers.done(opened.id, "Noted the tea.")).state)
    seam.counts = False
    await here.writers.aclose()
    await machine.memory.aclose()
    await database.aclose()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))
