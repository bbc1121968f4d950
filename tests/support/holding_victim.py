"""A daemon's memory in a process of its own that gets into a conflict, goes on in it and decides it, to be killed.

Arguments: folder, hub's address, file for the names of seams, and how many seams to pass before dying (0: never). Seams
count from the conflict on. Each commit's message is a line of `<file>.made`, once git has taken it.
"""

import asyncio
import sys
from pathlib import Path

from support.dying_seam import DyingSeam
from support.git_host_server import RunningHost
from support.memory_machines import AGENT, Machine, note


async def main(folder: Path, hub_url: str, record: Path, die_at: int) -> None:
    seam = DyingSeam(record, die_at, counts=False)
    machine = Machine(folder, RunningHost(None, hub_url), seam)  # type: ignore[arg-type]

    async def turn(path: str, text: str) -> None:
        message = f"{folder.name} makes {path} {text}"
        machine.commit(path, note(text), message)
        with record.with_suffix(".made").open("a") as made:
            made.write(message + "\n")
        await machine.bring_in()
        status = await machine.end_turn()
        print(status.outcome.value, status.detail, flush=True)

    await machine.memory.prepare(AGENT, None)
    print("ready", flush=True)
    sys.stdin.readline()
    seam.counts = True
    await turn(f"{folder.name}.md", "red")
    await turn(f"{folder.name}-tea.md", "tea")
    await turn(f"{folder.name}.md", "red and green")
    await machine.memory.aclose()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])))
