"""Memory of all agents of this machine: implements `AgentMemory`."""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeVar

from lodger_daemon.clock import Clock, WallTime
from lodger_daemon.identity import AgentId
from lodger_daemon.memory.card_change import change_card
from lodger_daemon.memory.checkout import Checkout, CheckoutAnswer, CheckoutWord
from lodger_daemon.memory.contract import (
    AgentCard,
    CompiledMemory,
    ImportReport,
    SyncOutcome,
    SyncStatus,
)
from lodger_daemon.memory.core.commits import Identity
from lodger_daemon.memory.core.remote_answers import again_wait_s
from lodger_daemon.memory.core.sync_state import Conflict, SyncState, reminders_for
from lodger_daemon.memory.errors import MemoryFailure, MemoryUnavailable
from lodger_daemon.memory.exchange import QUIET, Exchange, Exchanged, joined_state, noting_import, with_checkout
from lodger_daemon.memory.founding import Adopted, NotHad, NotThere, adopt, found
from lodger_daemon.memory.git import RunningGits
from lodger_daemon.memory.mirror import Mirror, MirrorStatus
from lodger_daemon.memory.persons_change import ChangeResult, Committed, Invalid, Unchanged, change_file
from lodger_daemon.memory.published import CHECKOUT, REMOTE, Published
from lodger_daemon.memory.reading import read_card, summarise_change
from lodger_daemon.memory.remote import Remote, is_agent_id
from lodger_daemon.memory.room import AgentRoom, Threads
from lodger_daemon.memory.seams import Seam, no_seam
from lodger_daemon.memory.settling import Decision, Settled, SettleResult
from lodger_daemon.paths import Paths
from lodger_daemon.randomness import Rng
from lodger_tools.box.contract import Boxes, BoxKey, BoxLost, BoxUnavailable

T = TypeVar("T")
_log = logging.getLogger(__name__)
_KEPT_GITS_IDLE_S: Final = 60.0
"""Two gits of some 5 MB each per agent are kept this long after the last sync."""
_ASK_AGAIN_S: Final = 60.0
"""How old what is known of a remote may be at a turn's start, if it announces nothing."""
_BOX_FAULTS: Final = (BoxUnavailable, BoxLost)
_LEVEL: Final = frozenset({SyncOutcome.CLEAN, SyncOutcome.PUSHED})


@dataclass(slots=True)
class _Agent:
    """An agent's room and what is asked of its worker."""

    room: AgentRoom
    prepare_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    card: tuple[str, AgentCard] | None = None
    """The card as of this published head."""
    requested: bool = False
    box: BoxKey | None = None
    fetch: bool = False
    heard: bool = False
    """Whether the remote has been asked, or has taken a push, since this process began."""
    announced: str | None = None
    ask_again_at: float = 0.0
    """From this monotonic time on, a remote that announces nothing is asked again."""
    worker: asyncio.Task[None] | None = None
    later: asyncio.Task[None] | None = None
    """Waits to try again, or to end the kept gits."""


class Memory:
    """Implements `AgentMemory`.

    Args:
        checkout_inside: where a box shows the agent's checkout.
        memory_box: the box for memory work when none of the agent's runs.
        remote: None means that memory stays on this machine.
        mirror: gets a copy after each sync.
        box_owner: uid and gid of the boxes' user when it is not the daemon's own; gets the checkout folder.
        seam: for crash tests.
    """

    def __init__(
        self,
        paths: Paths,
        boxes: Boxes,
        memory_box: Callable[[AgentId], BoxKey],
        remote: Remote | None,
        clock: Clock,
        rng: Rng,
        *,
        checkout_inside: str,
        box_owner: tuple[int, int] | None = None,
        mirror: Mirror | None = None,
        seam: Seam = no_seam,
    ) -> None:
        self._paths = paths
        self._boxes = boxes
        self._memory_box = memory_box
        self._remote = remote
        self._clock = clock
        self._rng = rng
        self._inside = checkout_inside
        self._box_owner = box_owner
        self._seam = seam
        self._mirror = mirror
        self._agents: dict[AgentId, _Agent] = {}
        self._running = RunningGits()
        self._local = ThreadPoolExecutor(4, "memory")
        self._network = ThreadPoolExecutor(8, "memory-network")
        self._closed = False

    async def start(self) -> None:
        """Take up syncs that an earlier daemon could not finish, or died before it began."""
        for agent_id in await asyncio.get_running_loop().run_in_executor(self._local, self._agents_here):
            published = self._agent(agent_id).room.published
            # The refs tell; the stored state is that of the last sync, and commits may have come after it.
            if self._remote is not None and published.head() != published.ref(REMOTE):
                self._request(agent_id, None, fetch=False)

    async def aclose(self) -> None:
        """End everything that runs. What was not pushed is pushed after the next start."""
        self._closed = True
        self._running.kill_all()
        tasks = [task for agent in self._agents.values() for task in (agent.worker, agent.later) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._mirror is not None:
            await self._mirror.aclose()
        await asyncio.to_thread(self._shut_down)

    async def prepare(
        self, agent_id: AgentId, card: AgentCard | None, progress: Callable[[str], None] | None = None
    ) -> AgentCard:
        if not is_agent_id(agent_id):
            raise MemoryUnavailable(f"{agent_id[:80]!r} is no agent id; it must look like agent-<uuid>")
        agent = self._agent(agent_id)
        async with agent.prepare_lock:
            published = agent.room.published
            if not published.exists():
                await self._found(agent, agent_id, card, progress or _no_progress)
            held = await self._card(agent, agent_id)
            published.identity = _identity(agent_id, held.name)
            if published.ref(CHECKOUT) is None:
                await self._first_checkout(agent, agent_id)
            return held

    def checkout_path(self, agent_id: AgentId) -> str:
        return str(self._folder(agent_id) / "checkout")

    async def compiled(self, agent_id: AgentId) -> CompiledMemory:
        return await self._agent(agent_id).room.compiled()

    async def changed_since(self, agent_id: AgentId, commit: str | None) -> tuple[str | None, str]:
        published = self._agent(agent_id).room.published
        head = published.head()
        if head is None or commit is None or commit == head:
            return head, ""
        room = self._agent(agent_id).room
        if not await room.local(published.has, commit):
            return head, "Your memory changed; what it was before is not known on this machine. Read it again."
        return head, await room.local(summarise_change, published, commit, head)

    async def import_commits(self, agent_id: AgentId, box: BoxKey) -> ImportReport:
        room = self._agent(agent_id).room
        if not room.published.exists():
            return ImportReport(False, None)
        try:
            return await room.import_from(box)
        except _BOX_FAULTS as fault:
            return ImportReport(False, room.published.head(), f"Memory: not looked at, the box is gone ({fault}).")
        except (MemoryFailure, OSError) as fault:
            text = f"Memory: your commit is kept in the checkout but not published yet: {fault}"
            return ImportReport(False, room.published.head(), text)

    async def look(self, agent_id: AgentId, work: Callable[[Published, str], T]) -> T:
        """What `work` finds in published memory, given its repository and the commit of its main; on a worker thread,
        under the agent's lock.

        Raises: MemoryUnavailable when there is no memory of this agent here yet; what `work` raises.
        """
        room = self._agent(agent_id).room
        if not room.published.exists():
            raise MemoryUnavailable(f"there is no memory of {agent_id} on this machine yet")

        def at_main() -> T:
            head = room.published.head()
            if head is None:
                raise MemoryUnavailable(f"the repository {room.published.repository} has no main; restore it")
            return work(room.published, head)

        return await room.local(at_main)

    async def change_for_person(
        self, agent_id: AgentId, path: str, content: bytes | None, message: str
    ) -> ChangeResult:
        """Write (or with None delete) one file in published memory. Durable when it returns; checkout and remote
        follow beside.

        Raises: MemoryFailure; BadRequest.
        """
        now_s = self._agent(agent_id).room.now_s()
        result = await self.look(
            agent_id, lambda published, head: change_file(published, head, path, content, message, now_s)
        )
        if isinstance(result, Committed):
            self._request(agent_id, None, fetch=False)
        return result

    async def follow_card(self, agent_id: AgentId, changes: Mapping[str, str]) -> None:
        room = self._agent(agent_id).room
        if not room.published.exists():
            return
        result = await self.look(agent_id, lambda published, head: change_card(published, head, changes, room.now_s()))
        match result:
            case Committed():
                self._request(agent_id, None, fetch=False)
            case Invalid(findings=findings):
                _log.warning("agent.toml of %s does not follow: %s", agent_id, findings[0])
            case Unchanged():
                pass

    def mirror_status(self, agent_id: AgentId) -> MirrorStatus | None:
        """How the copy elsewhere stands; None when no mirror is configured."""
        return None if self._mirror is None else self._mirror.status(agent_id, self._agent(agent_id).room)

    def conflict(self, agent_id: AgentId) -> Conflict | None:
        """What this machine and another, or the checkout, do not agree on."""
        return self._agent(agent_id).room.state.conflict

    async def settle(self, agent_id: AgentId, decision: Decision) -> SettleResult:
        """Carry out what a person decided about the conflict. Durable when it returns; the sync follows beside.

        Raises: MemoryFailure; BadRequest.
        """
        room = self._agent(agent_id).room
        if not room.published.exists():
            raise MemoryUnavailable(f"there is no memory of {agent_id} on this machine yet")
        result = await room.settle(decision)
        if isinstance(result, Settled):
            self._request(agent_id, None, fetch=False)
        return result

    def sync_now(self, agent_id: AgentId, *, fetch: bool) -> None:
        """Start a sync that somebody asked for; `settled` waits for it.

        Args:
            fetch: whether the remote is asked for newer memory even when there is no sign of any.
        """
        self._request(agent_id, self._memory_box(agent_id), fetch=fetch)

    def turn_ended(self, agent_id: AgentId, box: BoxKey | None) -> None:
        self._request(agent_id, box, fetch=False)

    def head_announced(self, agent_id: AgentId, head: str) -> None:
        # A hub may announce any number of names; what is kept is kept of agents that are here.
        if not is_agent_id(agent_id) or (agent_id not in self._agents and not self._folder(agent_id).exists()):
            return
        agent = self._agent(agent_id)
        agent.announced = head
        if agent.room.published.exists() and self._stale(agent):
            self._request(agent_id, None, fetch=True)

    async def freshen(self, agent_id: AgentId, limit_s: float = 0.3) -> None:
        agent = self._agent(agent_id)
        if self._remote is None or not agent.room.published.exists() or not self._stale(agent):
            return
        failing = agent.room.state.failures > 0
        self._request(agent_id, None, fetch=True)
        if not failing:
            await self.settled(agent_id, limit_s)

    def status(self, agent_id: AgentId) -> SyncStatus:
        room = self._agent(agent_id).room
        state = room.state
        at = None if state.at_s is None else WallTime(state.at_s)
        return SyncStatus(state.outcome, room.published.head(), state.ahead, at, state.detail)

    def last_level_at(self) -> WallTime | None:
        """When the memory of any agent here was last level with the hub's, as far as the agents' latest syncs tell."""
        states = [agent.room.state for agent in self._agents.values()]
        level = [state.at_s for state in states if state.outcome in _LEVEL and state.at_s is not None]
        return WallTime(max(level)) if level else None

    def reminders(self, agent_id: AgentId) -> tuple[str, ...]:
        room = self._agent(agent_id).room
        return (*reminders_for(room.state, self._inside), *((room.fullness,) if room.fullness else ()))

    async def settled(self, agent_id: AgentId, limit_s: float) -> SyncStatus:
        worker = self._agent(agent_id).worker
        if worker is not None and not worker.done():
            await asyncio.wait({worker}, timeout=limit_s)
        return self.status(agent_id)

    async def known_agents(self) -> tuple[AgentId, ...]:
        loop, remote = asyncio.get_running_loop(), self._remote
        there = () if remote is None else await loop.run_in_executor(self._network, remote.list_agents)
        here = await loop.run_in_executor(self._local, self._agents_here)
        return tuple(dict.fromkeys((*there, *here)))

    def _agent(self, agent_id: AgentId) -> _Agent:
        agent = self._agents.get(agent_id)
        if agent is None:
            identity = _identity(agent_id, agent_id)
            published = Published(self._folder(agent_id), identity, self._running, self._seam)
            checkout = Checkout(self._boxes, self._inside, agent_id, self._rng)
            threads = Threads(self._local, self._network)
            agent = _Agent(AgentRoom(published, checkout, self._boxes, self._clock, threads))
            self._agents[agent_id] = agent
        return agent

    def _folder(self, agent_id: AgentId) -> Path:
        if not is_agent_id(agent_id):
            raise MemoryUnavailable(f"{agent_id[:80]!r} is no agent id; it must look like agent-<uuid>")
        return self._paths.agents / agent_id

    def _agents_here(self) -> tuple[AgentId, ...]:
        if not self._paths.agents.is_dir():
            return ()
        names = sorted(path.name for path in self._paths.agents.iterdir() if (path / "published.git").is_dir())
        return tuple(AgentId(name) for name in names if is_agent_id(name))

    async def _found(
        self, agent: _Agent, agent_id: AgentId, card: AgentCard | None, progress: Callable[[str], None]
    ) -> None:
        room = agent.room
        room.published.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        reason = "no remote is configured"
        if self._remote is not None:
            progress("asking the hub for this agent's memory")
            match await room.network(adopt, room.published, agent_id, self._remote, room.now_s()):
                case Adopted():
                    agent.heard = True
                    await room.save(SyncState(outcome=SyncOutcome.CLEAN, at_s=self._clock.wall()))
                    return
                case NotThere():
                    reason = "the hub does not have it"
                case NotHad(reason=text):
                    reason = text
        if card is None:
            raise MemoryUnavailable(f"there is no memory of {agent_id} on this machine, and {reason}")
        progress("making a new memory")
        room.published.identity = _identity(agent_id, card.name)
        await room.local(found, room.published, card, room.now_s())

    async def _card(self, agent: _Agent, agent_id: AgentId) -> AgentCard:
        head = agent.room.published.head()
        if head is None:
            raise MemoryUnavailable(f"the repository {agent.room.published.repository} has no main; restore it")
        if agent.card is None or agent.card[0] != head:
            fallback = AgentCard(agent_id)
            agent.card = (head, await agent.room.local(read_card, agent.room.published, head, fallback))
        return agent.card[1]

    async def _first_checkout(self, agent: _Agent, agent_id: AgentId) -> None:
        """Without a box the turn goes on: tools refuse anyway, and the next import tries again."""
        await asyncio.get_running_loop().run_in_executor(self._local, self._make_folder, agent_id)
        try:
            await agent.room.import_from(self._memory_box(agent_id))
        except _BOX_FAULTS as fault:
            _log.warning("the checkout of %s waits for a box: %s", agent_id, fault)

    def _make_folder(self, agent_id: AgentId) -> None:
        place = self._folder(agent_id) / "checkout"
        try:
            place.mkdir(mode=0o700)
        except FileExistsError:
            return
        if self._box_owner is not None:
            os.chown(place, *self._box_owner)

    def _stale(self, agent: _Agent) -> bool:
        seen = agent.room.published.ref(REMOTE)
        if self._remote is not None and not self._remote.announces:
            return self._clock.mono() >= agent.ask_again_at
        if agent.announced is None:
            return not agent.heard
        if agent.announced == agent.room.published.head():
            # Our own push, announced before it returned, unless nothing is being pushed.
            return agent.announced != seen and (agent.worker is None or agent.worker.done())
        return agent.announced != seen

    def _request(self, agent_id: AgentId, box: BoxKey | None, *, fetch: bool) -> None:
        agent = self._agent(agent_id)
        agent.requested = True
        agent.box = box or agent.box
        agent.fetch = agent.fetch or fetch
        if agent.worker is None or agent.worker.done():
            if self._closed:
                return
            if agent.later is not None and agent.later is not asyncio.current_task():
                agent.later.cancel()
            agent.worker = asyncio.create_task(self._work(agent_id, agent), name=f"memory sync {agent_id}")

    async def _work(self, agent_id: AgentId, agent: _Agent) -> None:
        while agent.requested:
            box, fetch = agent.box, agent.fetch or (agent.announced is not None and self._stale(agent))
            agent.requested, agent.box, agent.fetch = False, None, False
            try:
                await self._sync(agent_id, agent, box, fetch)
            except Exception as fault:  # noqa: BLE001 - one agent's broken repository must not end syncing; the fault is shown
                _log.exception("the memory sync of %s failed", agent_id)
                state = agent.room.state
                failed = replace(
                    state,
                    outcome=SyncOutcome.PUSH_FAILED,
                    detail=f"{type(fault).__name__}: {fault}"[:400],
                    failures=state.failures + 1,
                    at_s=self._clock.wall(),
                )
                agent.room.state = failed
        agent.later = asyncio.create_task(self._afterwards(agent_id, agent), name=f"memory rest {agent_id}")

    async def _sync(self, agent_id: AgentId, agent: _Agent, box: BoxKey | None, fetch: bool) -> None:
        room = agent.room
        if not room.published.exists():
            return
        dirty = room.state.dirty
        if box is not None:
            try:
                await room.import_from(box)
                dirty = await room.checkout.dirty(box)
            except _BOX_FAULTS as fault:
                _log.info("the checkout of %s was not looked at: %s", agent_id, fault)
        if self._remote is None:
            done = Exchanged(SyncOutcome.SKIPPED, "no remote is configured")
        else:
            done = await Exchange(room, agent_id, self._remote, self._clock, self._rng).run(fetch)
            if done.outcome is not SyncOutcome.PUSH_FAILED:
                agent.heard = agent.heard or fetch or done.outcome is SyncOutcome.PUSHED
            if fetch:
                agent.ask_again_at = self._clock.mono() + _ASK_AGAIN_S
        ahead = 0
        if self._remote is not None and done.outcome not in QUIET:
            ahead = await room.local(_ahead, room.published)
        state = joined_state(replace(room.state, dirty=dirty), done, ahead, self._clock.wall())
        answer = await self._bring_along(agent_id, room, state, box)
        await room.save(with_checkout(noting_import(state, room.state), answer))
        await room.weigh()
        await room.keep_house()
        if self._mirror is not None and not self._closed:
            self._mirror.request(agent_id, room)

    async def _bring_along(
        self, agent_id: AgentId, room: AgentRoom, state: SyncState, box: BoxKey | None
    ) -> CheckoutAnswer | None:
        conflict = state.conflict
        if conflict is None and room.published.head() == room.published.ref(CHECKOUT):
            return None
        try:
            target = box or self._memory_box(agent_id)
            answer = await room.bring_along(target)
            if answer is not None and answer.word is CheckoutWord.MOVED:
                # The agent committed meanwhile: what it made comes first.
                await room.import_from(target)
                answer = await room.bring_along(target)
            if conflict is not None and not conflict.rewritten:
                await room.show_theirs(target, conflict.remote)
            return answer
        except _BOX_FAULTS as fault:
            return CheckoutAnswer(CheckoutWord.BUSY, f"no box: {fault}")

    async def _afterwards(self, agent_id: AgentId, agent: _Agent) -> None:
        failures = agent.room.state.failures
        if failures and self._remote is not None:
            await self._clock.sleep(again_wait_s(failures, self._rng.random()))
            self._request(agent_id, None, fetch=not agent.heard)
            return
        await self._clock.sleep(_KEPT_GITS_IDLE_S)
        await agent.room.local(agent.room.published.close)

    def _shut_down(self) -> None:
        self._local.shutdown(wait=True, cancel_futures=True)
        self._network.shutdown(wait=True, cancel_futures=True)
        for agent in self._agents.values():
            agent.room.published.close()


def _ahead(published: Published) -> int:
    return published.ahead_of(published.ref(REMOTE), published.head())


def _identity(agent_id: AgentId, name: str) -> Identity:
    return Identity(name, f"{agent_id}@lodger.invalid")


def _no_progress(text: str) -> None:
    pass
