"""A copy of every memory's main at another git host. It is written only, after syncs and beside everything."""

import asyncio
import logging
from dataclasses import dataclass, replace
from pathlib import Path

from lodger_daemon.clock import Clock, WallTime
from lodger_daemon.durable_files import write_durably
from lodger_daemon.identity import AgentId
from lodger_daemon.memory.core.mirror_state import MAX_STATE_BYTES, MirrorState, mirror_from_json, mirror_to_json
from lodger_daemon.memory.core.remote_answers import RemoteAnswer, again_wait_s, judge
from lodger_daemon.memory.holding import held_commit
from lodger_daemon.memory.published import Published
from lodger_daemon.memory.pushing import push
from lodger_daemon.memory.remote import Remote
from lodger_daemon.memory.room import AgentRoom
from lodger_daemon.randomness import Rng

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MirrorStatus:
    head: str | None
    """What the mirror has."""
    at: WallTime | None = None
    """Of the last try, also by an earlier daemon."""
    fault: str = ""
    """Why the last try failed."""


class Mirror:
    """Never forces: a mirror that holds anything else is left alone, and said so. What failed is tried again."""

    def __init__(self, remote: Remote, clock: Clock, rng: Rng) -> None:
        self._remote = remote
        self._clock = clock
        self._rng = rng
        self._running: dict[AgentId, asyncio.Task[None]] = {}
        self._later: dict[AgentId, asyncio.Task[None]] = {}
        """Each waits to try again."""
        self._again: set[AgentId] = set()
        self._states: dict[AgentId, MirrorState] = {}
        """As stored, or as it would be if the disk took it."""
        self._closed = False

    def request(self, agent_id: AgentId, room: AgentRoom) -> None:
        """Bring the mirror up to date soon; one push at a time for each agent."""
        if self._closed:
            return
        later = self._later.get(agent_id)
        if later is not None and later is not asyncio.current_task():
            later.cancel()
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
        state = self._state(agent_id, room)
        return MirrorStatus(state.head, None if state.at_s is None else WallTime(state.at_s), state.fault)

    async def aclose(self) -> None:
        """What is being pushed may still arrive; the next daemon looks."""
        self._closed = True
        tasks = (*self._running.values(), *self._later.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _work(self, agent_id: AgentId, room: AgentRoom) -> None:
        while True:
            self._again.discard(agent_id)
            before = self._state(agent_id, room)
            try:
                after = await self._push(agent_id, room, before)
            except Exception as error:  # noqa: BLE001 - a mirror's fault is shown, and ends nothing else
                _log.exception("the mirror of %s failed", agent_id)
                after = self._failed(before, f"{type(error).__name__}: {error}"[:400])
            if after != before:
                await self._keep(agent_id, room, replace(after, url=self._remote.url(agent_id)))
            if agent_id not in self._again:
                break
        if after.failures:
            self._later[agent_id] = asyncio.create_task(
                self._try_later(agent_id, room, after.failures), name=f"memory mirror rest {agent_id}"
            )

    async def _try_later(self, agent_id: AgentId, room: AgentRoom, failures: int) -> None:
        await self._clock.sleep(again_wait_s(failures, self._rng.random()))
        self.request(agent_id, room)

    async def _push(self, agent_id: AgentId, room: AgentRoom, state: MirrorState) -> MirrorState:
        published = room.published
        commit = await room.local(_agreed, published)
        if commit is None or commit == state.head:
            return replace(state, fault="", failures=0)
        url = await room.network(self._remote.url, agent_id)

        async def took(step: str) -> None:
            nonlocal state
            state = replace(state, head=step, url=url)
            await self._keep(agent_id, room, state)

        exit_code, text = await push(room, self._remote, url, commit, state.head, took)
        answer = judge(exit_code, text)
        if answer is RemoteAnswer.DONE:
            return replace(state, head=commit, at_s=self._clock.wall(), fault="", failures=0)
        if answer is RemoteAnswer.BEHIND:
            return self._failed(
                state, "the mirror holds commits that are not in this memory; empty it, or name another"
            )
        shown = await room.network(self._remote.cleaned, text)
        return self._failed(state, shown or "the mirror took too long")

    def _failed(self, state: MirrorState, fault: str) -> MirrorState:
        return replace(state, at_s=self._clock.wall(), fault=fault, failures=state.failures + 1)

    def _state(self, agent_id: AgentId, room: AgentRoom) -> MirrorState:
        known = self._states.get(agent_id)
        if known is None:
            known = self._states[agent_id] = _stored(room, self._remote.url(agent_id))
        return known

    async def _keep(self, agent_id: AgentId, room: AgentRoom, state: MirrorState) -> None:
        """Durable when it returns, unless the disk takes nothing."""
        self._states[agent_id] = state
        try:
            await room.network(write_durably, _state_file(room), mirror_to_json(state))
        except OSError as fault:
            _log.warning("how the mirror of %s stands could not be stored: %s", agent_id, fault)


def _state_file(room: AgentRoom) -> Path:
    return room.published.folder / "mirror.json"


def _stored(room: AgentRoom, url: str) -> MirrorState:
    try:
        with _state_file(room).open(encoding="utf-8") as stored:
            return mirror_from_json(stored.read(MAX_STATE_BYTES), url)
    except (OSError, UnicodeDecodeError):
        return MirrorState()


def _agreed(published: Published) -> str | None:
    """Main without what is in conflict."""
    held = held_commit(published)
    return published.head() if held is None else published.commit(held).parents[0]
