"""A daemon's memory in a process of its own, to be killed: prepare, commit, import, sync.

Arguments: folder, hub's address, file for the names of seams, and how many seams to pass before dying (0: never).
"""

import asyncio
import sys
from pathlib import Path

from support.dying_seam import DyingSeam
from support.git_host_server import TOKEN, RunningHost
from support.memory_machines import AGENT, CARD, Machine, note
from support.plain_boxes import agent_git


async def main(folder: Path, hub_url: str, record: Path, die_at: int) -> None:
    hub = RunningHost(None, hub_url)  # type: ignore[arg-type]
    machine = Machine(folder, hub, DyingSeam(record, die_at))
    await machine.memory.prepare(AGENT, CARD)
    await machine.bring_in()
    if not (machine.checkout / f"mine-{folder.name}.md").exists():
        machine.commit(f"mine-{folder.name}.md", note("mine"))
        interfere(folder, hub)
    await machine.bring_in()
    status = await machine.end_turn()
    print(status.outcome.value, status.head, flush=True)
    await machine.memory.aclose()


def interfere(folder: Path, hub: RunningHost) -> None:
    """Another clone pushes first, so that the sync has to fetch, replay and update the checkout."""
    other = folder.with_name(folder.name + "-clone")
    url = hub.url(AGENT).replace("://", f"://letta:{TOKEN}@")
    agent_git(folder.parent, "clone", "-q", url, str(other))
    (other / f"{other.name}.md").write_text(note("clone"))
    agent_git(other, "add", "-A")
    agent_git(other, "-c", "user.name=c", "-c", "user.email=c@d", "commit", "-q", "-m", "clone")
    agent_git(other, "push", "-q", "origin", "main")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])))
