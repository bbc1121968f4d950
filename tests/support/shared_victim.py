"""A daemon's shared memories in a process of its own, to be killed: prepare, look, commit, import, sync.

Arguments: folder, the hub's address and state folder, file for the names of the seams that come up from the first
change of what is attached on, and the one of these to die at (an empty name: none).
"""

import asyncio
import sys
from pathlib import Path

from lodger_daemon.memory.contract import AgentCard
from lodger_hub.reach import Reach
from support.dying_seam import DyingSeam
from support.hub_rig import Hub
from support.memory_machines import note
from support.shared_machines import SharingMachine

AGENT = "agent-victim"
CHANGING = "before changing what is attached"


async def main(folder: Path, hub_url: str, hub_state: Path, record: Path, die_at: str) -> None:
    seam = DyingSeam(record, die_at, counts=False, counts_from=CHANGING)
    machine = SharingMachine(folder, Hub(hub_state, hub_url, Reach(hub_url, ())), AGENT, seam)
    await machine.memory.prepare(machine.agent, AgentCard(AGENT))
    await machine.look()
    assert machine.memory.shared is not None
    if machine.memory.shared.of(machine.agent):
        mine = f"mine-{folder.name}.md"
        if machine.checkout().exists() and not (machine.checkout() / mine).exists():
            machine.commit(mine, note("mine"))
        await machine.bring_in()
        await machine.end_turn()
    await machine.memory.aclose()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]), sys.argv[5]))
