"""A box and the connection to its runner."""

import asyncio
from dataclasses import replace
from typing import Final

from lodger_sandbox.cgroups import memory_kills
from lodger_tools.box import record as records
from lodger_tools.box.contract import BoxOutcome, StillRuns
from lodger_tools.box.link import BoxLink

KILLED: Final = 128 + 9


class Box:
    """One connected box."""

    __slots__ = ("background", "calls", "found", "idle_since", "leftovers", "link", "memory_kills", "retired")

    def __init__(self, found: records.FoundBox, link: BoxLink, now: float) -> None:
        self.found = found
        self.link = link
        self.calls = 0
        self.background: set[str] = set()
        """Keys of calls that run without being waited for."""
        self.idle_since = now
        self.leftovers = 0
        self.memory_kills = 0
        """Of its control group, as far as they were told."""
        self.retired = False
        """Started under a policy that has changed since: it finishes calls but begins none."""


async def connect(found: records.FoundBox, now: float) -> Box:
    """Raises: BoxLost; OSError; TimeoutError."""
    connection = await asyncio.to_thread(records.connect, found.folder)
    loop = asyncio.get_running_loop()
    _, link = await loop.create_unix_connection(lambda: BoxLink(found.token), sock=connection)
    try:
        await link.greeted()
    except BaseException:
        link.close()
        raise
    return Box(found, link, now)


async def explained(box: Box, outcome: BoxOutcome) -> BoxOutcome:
    """A death by KILL is for want of memory when the kernel has done that in this box since we looked last."""
    group = box.found.record.group
    if not group or outcome.exit_code != KILLED or outcome.out_of_memory:
        return outcome
    kills = await asyncio.to_thread(memory_kills, group)
    is_one, box.memory_kills = kills > box.memory_kills, kills
    return replace(outcome, out_of_memory=True) if is_one else outcome


def note_outcome(box: Box, outcome: BoxOutcome | StillRuns, call_key: str) -> None:
    if isinstance(outcome, StillRuns):
        box.background.add(call_key)
    else:
        box.background.discard(call_key)
        box.leftovers += outcome.leftovers
