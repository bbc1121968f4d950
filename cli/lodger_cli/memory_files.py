"""`lodger memory export`, `backup`, `restore` and `check`: a memory and files outside it.

They open the published repository themselves, under its lock, so that they work without a daemon and beside one.
"""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from lodger_cli.places import local_daemon, paths
from lodger_cli.terminal import Exit, fail, for_terminal, say, say_json
from lodger_cli.wire import WireError
from lodger_daemon.memory.backups import NotRestored, export_files, read_backup, restore, write_backup
from lodger_daemon.memory.core.commits import identity_of
from lodger_daemon.memory.core.wanted_paths import BadRequest
from lodger_daemon.memory.errors import MemoryFailure
from lodger_daemon.memory.git import RunningGits
from lodger_daemon.memory.published import Published
from lodger_daemon.memory.remote import is_agent_id
from lodger_daemon.memory.seams import no_seam
from lodger_hub.git_host.repositories import GitMissing
from lodger_hub.git_host.upkeep import Checked, Upkeep

T = TypeVar("T")


def export(agent: str, folder: str, *, at: str, as_json: bool) -> None:
    agent_id = _agent_here(agent)

    def work(published: Published) -> int:
        return export_files(published, published.head() or "", at, Path(folder).absolute())

    count = _with_memory(agent_id, work)
    if as_json:
        say_json({"agent_id": agent_id, "folder": str(Path(folder).absolute()), "files": count})
    else:
        say(f"{count} file(s) of {agent_id} are in {folder}.")


def backup(agent: str, file: str, *, as_json: bool) -> None:
    agent_id = _agent_here(agent)
    place = Path(file or f"{agent_id}-{datetime.now(UTC):%Y-%m-%d-%H%M%S}.bundle").absolute()
    head = _with_memory(agent_id, lambda published: write_backup(published, agent_id, place))
    if as_json:
        say_json({"agent_id": agent_id, "file": str(place), "head": head})
    else:
        say(f"The memory of {agent_id} at {head[:12]} is in {place}.")


def bring_back(agent: str, file: str, *, as_json: bool) -> None:
    place = Path(file).absolute()
    try:
        found = read_backup(place)
    except OSError as error:
        fail(f"{file} cannot be read: {error.strerror}", Exit.USAGE)
    except BadRequest as error:
        fail(str(error))
    agent_id = agent or found.agent_id or ""
    if not is_agent_id(agent_id):
        fail(f"{file} does not say whose memory it is; name the agent with --agent", Exit.USAGE)
    (paths().agents / agent_id).mkdir(mode=0o700, parents=True, exist_ok=True)
    result = _with_memory(agent_id, lambda published: restore(published, found, int(time.time())))
    if isinstance(result, NotRestored):
        told = "; ".join(str(finding) for finding in result.findings[:5])
        fail(f"nothing was restored: what {file} holds is no valid memory: {told}")
    asyncio.run(_tell_daemon(agent_id))
    if as_json:
        say_json({"agent_id": agent_id, "head": result.head, "changed": result.changed})
    elif result.changed:
        say(f"The memory of {agent_id} is as in {file} again, as commit {result.head[:12]}.")
    else:
        say(f"The memory of {agent_id} holds what {file} holds already.")


def check(agent: str, *, as_json: bool) -> None:
    """Every object of the published repository, and of the hub's where the hub is here. Ends with an error if one is
    broken."""
    agent_id = _agent_here(agent)
    published, hub = paths().agents / agent_id / "published.git", paths().hub / "git" / agent_id / "state.git"
    found: dict[str, Checked] = {}
    for place in (published, hub):
        if place.is_dir():
            try:
                found[str(place)] = Upkeep().check(place)
            except (GitMissing, OSError) as error:
                fail(str(error))
    if as_json:
        say_json([{"repository": place, "whole": one.whole, "found": one.text} for place, one in found.items()])
    else:
        for name, one in found.items():
            say(f"{name}: {'whole' if one.whole else 'BROKEN'}")
            if one.text:
                say(for_terminal(one.text))
    if not all(one.whole for one in found.values()):
        raise SystemExit(int(Exit.FAILED))


def _agent_here(agent: str) -> str:
    folder = paths().agents
    names = sorted(place.parent.name for place in folder.glob("agent-*/published.git")) if folder.is_dir() else []
    if agent and agent not in names:
        fail(f"there is no memory of {agent[:120]} on this machine")
    if not names:
        fail("there is no agent's memory on this machine yet")
    if not agent and len(names) > 1:
        fail(f"name one with --agent: {', '.join(names)}", Exit.USAGE)
    return agent or names[0]


def _with_memory(agent_id: str, work: Callable[[Published], T]) -> T:
    """What `work` makes of an agent's published memory, under its lock."""
    published = Published(paths().agents / agent_id, identity_of(agent_id, agent_id), RunningGits(), no_seam)
    try:
        with published.lock():
            return work(published)
    except (BadRequest, MemoryFailure, OSError) as error:
        fail(str(error))
    finally:
        published.close()


async def _tell_daemon(agent_id: str) -> None:
    """A daemon that runs brings checkout and remote along at once; one that starts later finds out by itself."""
    try:
        async with local_daemon(start=False) as client:
            await client.request({"type": "lodger_memory_sync", "agent_id": agent_id, "fetch": False, "limit_s": 0})
    except WireError:
        pass
