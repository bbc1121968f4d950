"""A copy of every memory's main at another git host. It is written only, after syncs and beside everything."""

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from lodger_daemon.clock import Clock, WallTime
from lodger_daemon.identity import AgentId
from lodger_daemon.memory.core.remote_answers import RemoteAnswer, judge
from lodger_daemon.memory.holding import held_commit
from lodger_daemon.memory.kept_gits import RefChange
from lodger_daemon.memory.published import Published
from lodger_daemon.memory.remote import Remote
from lodger_daemon.memory.room import AgentRoom

MIRRORED: Final = "refs/lodger/mirrored"
"""What the mirror's main is, as far as we know."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MirrorStatus:
    head: str | None
    """What the mirror has."""
    at: WallTime | None = None
    """Of the last try in this process."""
    fault: str = ""
    """Why the last try failed."""


class Mirror:
    """Never forces: a mirror that holds anything else is left alone, and said so."""

    def __init__(self, remote: Remote, clock: Clock) -> None:
        self._remote = remote
        self._clock = clock
        self._running: dict[AgentId, asyncio.Task[None]] = {}
        self._again: set[AgentId] = set()
        self._last: dict[AgentId, tuple[WallTime, str]] = {}

    def request(self, agent_id: AgentId, room: AgentRoom) -> None:
        """Bring the mirror up to date soon; one push at a time for each agent."""
        running = self._running.get(agent_id)
        if running is not None and not running.done():
            self._again.add(agent_id)
            return
        self._running[agent_id] = asyncio.create_task(self._work(agent_id, room), name=f"memory mirror {agent_id}")

    async def settled(self, agent_id: AgentId, limit_s: float) -> None:
        running = self._running.get(agent_id)
        if running is not None:
            await asyncio.wait({running}, timeout=limit_s)

    def status(self, agent_id: AgentId, room: AgentRoom) -> MirrorStatus:
        at, fault = self._last.get(agent_id, (None, ""))
        return MirrorStatus(room.published.ref(MIRRORED), at, fault)

    async def aclose(self) -> None:
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def _work(self, agent_id: AgentId, room: AgentRoom) -> None:
        while True:
            self._again.discard(agent_id)
            try:
                fault = await self._push(agent_id, room)
            except Exception as error:  # noqa: BLE001 - a mirror's fault is shown, and ends nothing else
                _log.exception("the mirror of %s failed", agent_id)
                fault = f"{type(error).__name__}: {error}"[:400]
            self._last[agent_id] = (self._clock.wall(), fault)
            if agent_id not in self._again:
                return

    async def _push(self, agent_id: AgentId, room: AgentRoom) -> str:
        published = room.published
        commit = await room.local(_agreed, published)
        if commit is None or commit == published.ref(MIRRORED):
            return ""
        exit_code, text = await room.network(
            lambda: published.push(self._remote.url(agent_id), self._remote.environment(), commit)
        )
        answer = judge(exit_code, text)
        if answer is RemoteAnswer.DONE:
            await room.local(_note, published, commit)
            return ""
        if answer is RemoteAnswer.BEHIND:
            return "the mirror holds commits that are not in this memory; empty it, or name another"
        shown = await room.network(self._remote.cleaned, text)
        return shown or "the mirror took too long"


def _agreed(published: Published) -> str | None:
    """Main without what is in conflict."""
    held = held_commit(published)
    return published.head() if held is None else published.commit(held).parents[0]


def _note(published: Published, commit: str) -> None:
    published.change_refs(RefChange(MIRRORED, commit, published.ref(MIRRORED)))
