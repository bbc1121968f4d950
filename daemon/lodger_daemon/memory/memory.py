"""Memory of all agents of this machine: implements `AgentMemory`."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

from lodger_daemon.clock import Clock, WallTime
from lodger_daemon.identity import AgentId
from lodger_daemon.memory.card_change import change_card
from lodger_daemon.memory.checkout import Checkout, make_checkout_folder
from lodger_daemon.memory.contract import (
    AgentCard,
    CompiledMemory,
    ImportReport,
    SyncOutcome,
    SyncStatus,
)
from lodger_daemon.memory.core.commits import identity_of
from lodger_daemon.memory.core.first_files import first_files
from lodger_daemon.memory.core.shared import parts_of, standing_of
from lodger_daemon.memory.core.sync_state import Conflict, reminders_for
from lodger_daemon.memory.errors import MemoryFailure, MemoryUnavailable
from lodger_daemon.memory.founding import Adopted, NotHad, NotThere, found
from lodger_daemon.memory.git import RunningGits
from lodger_daemon.memory.mirror import Mirror, MirrorStatus
from lodger_daemon.memory.persons_change import ChangeResult, Committed, Invalid, Unchanged, change_file
from lodger_daemon.memory.published import CHECKOUT, Published
from lodger_daemon.memory.reading import read_card, summarise_change
from lodger_daemon.memory.remote import Remote, is_agent_id
from lodger_daemon.memory.room import AgentRoom, Threads
from lodger_daemon.memory.seams import Seam, no_seam
from lodger_daemon.memory.settling import Decision, Settled, SettleResult
from lodger_daemon.memory.shared_memories import SharedMemories, SharingPlaces, Workings
from lodger_daemon.memory.syncing import BOX_FAULTS, RepositorySync
from lodger_daemon.paths import Paths
from lodger_daemon.randomness import Rng
from lodger_tools.box.contract import Boxes, BoxKey

T = TypeVar("T")
_log = logging.getLogger(__name__)
_LEVEL: Final = frozenset({SyncOutcome.CLEAN, SyncOutcome.PUSHED})


class Memory:
    """Implements `AgentMemory`.

    Args:
        checkout_inside: where a box shows the agent's checkout.
        memory_box: the box for memory work when none of the agent's runs.
        remote: None means that memory stays on this machine.
        mirror: gets a copy after each sync.
        box_owner: uid and gid of the boxes' user when it is not the daemon's own; gets the checkout folder.
        sharing: how memories that agents share appear here; None where there is no hub that has any.
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
        sharing: SharingPlaces | None = None,
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
        self._agents: dict[AgentId, RepositorySync] = {}
        self._cards: dict[AgentId, tuple[str, AgentCard]] = {}
        """Each card as of a published head."""
        self._running = RunningGits()
        self._local = ThreadPoolExecutor(4, "memory")
        self._network = ThreadPoolExecutor(8, "memory-network")
        self._threads = Threads(self._local, self._network)
        workings = Workings(boxes, self._running, self._threads, clock, rng, seam, memory_box)
        self.shared = None if sharing is None else SharedMemories(paths.agents, sharing, workings, self.head_announced)

    async def start(self) -> None:
        """Take up syncs that an earlier daemon could not finish, or died before it began."""
        for agent_id in await asyncio.get_running_loop().run_in_executor(self._local, self._agents_here):
            agent = self._agent(agent_id)
            agent.take_up()
            self._copy(agent_id, agent.room)
            if self.shared is not None:
                self.shared.take_up(agent_id)

    async def aclose(self) -> None:
        """End everything that runs. What was not pushed is pushed after the next start."""
        if self._mirror is not None:
            # Before its git is killed: that is no fault of the mirror's.
            await self._mirror.aclose()
        self._running.kill_all()
        await asyncio.gather(*(agent.aclose() for agent in self._agents.values()))
        if self.shared is not None:
            await self.shared.aclose()
        await asyncio.to_thread(self._shut_down)

    async def prepare(
        self, agent_id: AgentId, card: AgentCard | None, progress: Callable[[str], None] | None = None
    ) -> AgentCard:
        if not is_agent_id(agent_id):
            raise MemoryUnavailable(f"{agent_id[:80]!r} is no agent id; it must look like agent-<uuid>")
        agent = self._agent(agent_id)
        if self.shared is not None:
            self.shared.look_if_stale(agent_id)
        async with agent.prepare_lock:
            published = agent.room.published
            if not published.exists():
                await self._found(agent, agent_id, card, progress or _no_progress)
            held = await self._card(agent, agent_id)
            published.identity = identity_of(agent_id, held.name)
            if published.ref(CHECKOUT) is None:
                await asyncio.get_running_loop().run_in_executor(
                    self._local, make_checkout_folder, Path(self.checkout_path(agent_id)), self._box_owner
                )
                await agent.first_checkout()
            return held

    def checkout_path(self, agent_id: AgentId) -> str:
        return str(self._folder(agent_id) / "checkout")

    async def compiled(self, agent_id: AgentId) -> CompiledMemory:
        own = await self._agent(agent_id).room.compiled()
        if self.shared is None or not (heads := self.shared.heads(agent_id)):
            return own
        parts = await self.shared.prompt_parts(agent_id, heads)
        return replace(
            own, standing=standing_of(own.standing, heads), text=f"{own.text}\n{parts}" if parts else own.text
        )

    def standing(self, agent_id: AgentId) -> str | None:
        heads = {} if self.shared is None else self.shared.heads(agent_id)
        return standing_of(self._agent(agent_id).room.published.head(), heads)

    async def changed_since(self, agent_id: AgentId, standing: str | None) -> tuple[str | None, str]:
        now, (commit, seen) = self.standing(agent_id), parts_of(standing)
        told = [await self._own_change(agent_id, commit)]
        if self.shared is not None and standing is not None:
            told.append(await self.shared.changed(agent_id, seen))
        return now, "\n\n".join(text for text in told if text)

    async def _own_change(self, agent_id: AgentId, commit: str | None) -> str:
        room = self._agent(agent_id).room
        head = room.published.head()
        if head is None or commit is None or commit == head:
            return ""
        if not await room.local(room.published.has, commit):
            return "Your memory changed; what it was before is not known on this machine. Read it again."
        return await room.local(summarise_change, room.published, commit, head)

    async def import_commits(self, agent_id: AgentId, box: BoxKey, told_head: str = "") -> ImportReport:
        own = await self._import_own(agent_id, box, told_head)
        if self.shared is None:
            return replace(own, standing=own.head)
        moved, text = await self.shared.import_commits(agent_id, box)
        text = "\n".join(part for part in (own.text, text) if part)
        standing = standing_of(own.head, self.shared.heads(agent_id))
        return ImportReport(own.moved or moved, own.head, text, standing)

    async def _import_own(self, agent_id: AgentId, box: BoxKey, told_head: str) -> ImportReport:
        room = self._agent(agent_id).room
        if not room.published.exists():
            return ImportReport(False, None)
        if told_head and room.knows(told_head):
            return ImportReport(False, room.published.head())
        try:
            return await room.import_from(box)
        except BOX_FAULTS as fault:
            return ImportReport(False, room.published.head(), f"Memory: not looked at, the box is gone ({fault}).")
        except (MemoryFailure, OSError) as fault:
            text = f"Memory: your commit is kept in the checkout but not published yet: {fault}"
            return ImportReport(False, room.published.head(), text)

    async def look(self, agent_id: AgentId, work: Callable[[Published, str], T], shared: str | None = None) -> T:
        """What `work` finds in published memory, given its repository and the commit of its main; on a worker thread,
        under the repository's lock.

        Args:
            shared: the name of a memory that the agent shares, instead of its own.

        Raises: MemoryUnavailable when there is no such memory here yet; what `work` raises.
        """
        room = self._founded(agent_id, shared).room
        return await room.local(lambda: work(room.published, room.published.main()))

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
            self._agent(agent_id).request(None, fetch=False)
        return result

    async def follow_card(self, agent_id: AgentId, changes: Mapping[str, str]) -> None:
        room = self._agent(agent_id).room
        if not room.published.exists():
            return
        result = await self.look(agent_id, lambda published, head: change_card(published, head, changes, room.now_s()))
        match result:
            case Committed():
                self._agent(agent_id).request(None, fetch=False)
            case Invalid(findings=findings):
                _log.warning("agent.toml of %s does not follow: %s", agent_id, findings[0])
            case Unchanged():
                pass

    def mirror_status(self, agent_id: AgentId) -> MirrorStatus | None:
        """How the copy elsewhere stands; None when no mirror is configured."""
        return None if self._mirror is None else self._mirror.status(agent_id, self._agent(agent_id).room)

    def packs(self, agent_id: AgentId, commit: str) -> AsyncIterator[bytes]:
        """A published commit with its history, in packs that a box takes. Raises: MemoryFailure."""
        return self._agent(agent_id).room.packs((commit,), ())

    def conflict(self, agent_id: AgentId) -> Conflict | None:
        """What this machine and another, or the checkout, do not agree on."""
        return self._agent(agent_id).room.state.conflict

    def repository(self, agent_id: AgentId, shared: str | None) -> RepositorySync:
        """The agent's own, or the one of this name that it shares. Raises: MemoryUnavailable."""
        if shared is None:
            return self._agent(agent_id)
        if self.shared is None:
            raise MemoryUnavailable("memories are shared at a hub, and this machine has none: `lodger join`")
        return self.shared.one(agent_id, shared).sync

    def _founded(self, agent_id: AgentId, shared: str | None) -> RepositorySync:
        """Raises: MemoryUnavailable, also while it is not here yet."""
        repository = self.repository(agent_id, shared)
        if not repository.room.published.exists():
            raise MemoryUnavailable(f"there is no memory of {agent_id} on this machine yet")
        return repository

    async def settle(self, agent_id: AgentId, decision: Decision, shared: str | None = None) -> SettleResult:
        """Carry out what a person decided about the conflict. Durable when it returns; the sync follows beside.

        Raises: MemoryFailure; BadRequest.
        """
        repository = self._founded(agent_id, shared)
        result = await repository.room.settle(decision)
        if isinstance(result, Settled):
            repository.request(None, fetch=False)
        return result

    def sync_now(self, agent_id: AgentId, *, fetch: bool, shared: str | None = None) -> None:
        """Start a sync that somebody asked for; `settled` waits for it.

        Args:
            fetch: whether the remote is asked for newer memory even when there is no sign of any.

        Raises: MemoryUnavailable.
        """
        repository = self.repository(agent_id, shared)
        repository.request(self._memory_box(agent_id) if repository.room.may_write else None, fetch=fetch)

    def turn_ended(self, agent_id: AgentId, box: BoxKey | None) -> None:
        self._agent(agent_id).request(box, fetch=False)
        if self.shared is not None:
            self.shared.turn_ended(agent_id, box)

    def head_announced(self, agent_id: AgentId, head: str) -> None:
        if self._is_here(agent_id):
            self._agent(agent_id).announced(head)

    def shared_head_announced(self, name: str, head: str) -> None:
        """The hub has another head of a memory that agents share."""
        if self.shared is not None:
            self.shared.head_announced(name, head)

    def sharing_announced(self, agent_id: AgentId) -> None:
        """Other memories than before are attached to an agent, as the hub says."""
        if self.shared is not None and self._is_here(agent_id):
            self.shared.look(agent_id)

    def _is_here(self, agent_id: AgentId) -> bool:
        # A hub may announce any number of names; what is kept is kept of agents that are here.
        return is_agent_id(agent_id) and (agent_id in self._agents or self._folder(agent_id).exists())

    async def freshen(self, agent_id: AgentId, limit_s: float = 0.3) -> None:
        own = self._agent(agent_id).freshen(limit_s)
        if self.shared is None:
            await own
        else:
            await asyncio.gather(own, self.shared.freshen(agent_id, limit_s))

    def status(self, agent_id: AgentId) -> SyncStatus:
        return self._agent(agent_id).status()

    def last_level_at(self) -> WallTime | None:
        """When the memory of any agent here was last level with the hub's, as far as the agents' latest syncs tell."""
        states = [agent.room.state for agent in self._agents.values()]
        level = [state.at_s for state in states if state.outcome in _LEVEL and state.at_s is not None]
        return WallTime(max(level)) if level else None

    def reminders(self, agent_id: AgentId) -> tuple[str, ...]:
        room = self._agent(agent_id).room
        of_shared = () if self.shared is None else self.shared.reminders(agent_id)
        return (*reminders_for(room.state, self._inside), *((room.fullness,) if room.fullness else ()), *of_shared)

    async def settled(self, agent_id: AgentId, limit_s: float) -> SyncStatus:
        return await self._agent(agent_id).settled(limit_s)

    async def known_agents(self) -> tuple[AgentId, ...]:
        loop, remote = asyncio.get_running_loop(), self._remote
        there = () if remote is None else await loop.run_in_executor(self._network, remote.list_agents)
        here = await loop.run_in_executor(self._local, self._agents_here)
        return tuple(dict.fromkeys((*there, *here)))

    def _agent(self, agent_id: AgentId) -> RepositorySync:
        agent = self._agents.get(agent_id)
        if agent is None:
            identity = identity_of(agent_id, agent_id)
            published = Published(self._folder(agent_id), identity, self._running, self._seam)
            checkout = Checkout(self._boxes, self._inside, agent_id, self._rng)
            room = AgentRoom(published, checkout, self._boxes, self._clock, self._threads)
            agent = RepositorySync(
                room,
                agent_id,
                self._remote,
                lambda: self._memory_box(agent_id),
                self._clock,
                self._rng,
                lambda: self._copy(agent_id, room),
            )
            self._agents[agent_id] = agent
        return agent

    def _copy(self, agent_id: AgentId, room: AgentRoom) -> None:
        if self._mirror is not None:
            self._mirror.request(agent_id, room)

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
        self, agent: RepositorySync, agent_id: AgentId, card: AgentCard | None, progress: Callable[[str], None]
    ) -> None:
        room = agent.room
        room.published.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        reason = "no remote is configured"
        if self._remote is not None:
            progress("asking the remote for this agent's memory")
            match await agent.adopt():
                case Adopted():
                    return
                case NotThere():
                    reason = f"there is none at {self._remote.url(agent_id)}"
                case NotHad(reason=text):
                    reason = text
        if card is None:
            raise MemoryUnavailable(f"there is no memory of {agent_id} on this machine, and {reason}")
        progress("making a new memory")
        room.published.identity = identity_of(agent_id, card.name)
        await room.local(found, room.published, first_files(card), room.now_s())

    async def _card(self, agent: RepositorySync, agent_id: AgentId) -> AgentCard:
        head = agent.room.published.main()
        known = self._cards.get(agent_id)
        if known is None or known[0] != head:
            card = await agent.room.local(read_card, agent.room.published, head, AgentCard(agent_id))
            known = self._cards[agent_id] = (head, card)
        return known[1]

    def _shut_down(self) -> None:
        self._local.shutdown(wait=True, cancel_futures=True)
        self._network.shutdown(wait=True, cancel_futures=True)
        for agent in self._agents.values():
            agent.room.published.close()
        if self.shared is not None:
            self.shared.close_gits()


def _no_progress(text: str) -> None:
    pass
