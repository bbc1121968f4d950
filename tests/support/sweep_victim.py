"""A daemon's memory in a process of its own, to be killed while it lets go of what nothing needs.

Arguments: folder, file for the names of seams, and how many seams to pass before dying (0: never). The names count from
when the housekeeping begins.
"""

import asyncio
import sys
from pathlib import Path

from lodger_daemon.memory.housekeeping import sweep_at_next
from lodger_daemon.memory.published import Published
from support.dying_seam import DyingSeam
from support.memory_machines import AGENT, CARD, Machine, note

SUPERSEDED, KEPT = "refs/lodger/rescue/1-remote", "refs/lodger/rescue/1-local"


def prepare_house(published: Published, head: str) -> None:
    """A kept ref that main has, one that it has not, and a commit that no ref leads to."""
    tree = published.commit(head).tree
    published.set_ref(SUPERSEDED, head)
    published.set_ref(KEPT, published.git.line("commit-tree", tree, "-m", "kept"))
    published.git.line("commit-tree", tree, "-m", "unneeded")
    sweep_at_next(published)


async def main(folder: Path, record: Path, die_at: int) -> None:
    seam = DyingSeam(record, die_at, counts=False)
    machine = Machine(folder, None, seam)
    await machine.memory.prepare(AGENT, CARD)
    machine.commit("fact.md", note("blue"))
    await machine.bring_in()
    await machine.memory.look(AGENT, prepare_house)
    seam.counts = True
    await machine.memory.repository(AGENT, None).room.keep_house(has_remote=False)
    await machine.memory.aclose()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))
