"""The memories that the agents of this machine share with others: which ones, and each kept level as an agent's own.

What is attached to an agent is the hub's to say, so it is the same on every machine. What the hub does not answer
changes nothing. Attaching and detaching are beside everything, one at a time for each agent; after a crash the next
look does the rest.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, ParamSpec, TypeVar, assert_never

from lodger_daemon.clock import Clock
from lodger_daemon.identity import AgentId
from lodger_daemon.memory.checkout import Checkout
from lodger_daemon.memory.contract import SyncOutcome
from lodger_daemon.memory.core.commits import identity_of
from lodger_daemon.memory.core.first_files import first_shared_files
from lodger_daemon.memory.core.shared import (
    Attach,
    Change,
    Detach,
    ShareRole,
    Widen,
    budget_bytes,
    changes,
    words_of_others,
)
from lodger_daemon.memory.core.sync_state import SyncState, reminders_for, subject_of
from lodger_daemon.memory.errors import MemoryFailure, MemoryUnavailable
from lodger_daemon.memory.founding import Adopted, NotHad, NotThere, found
from lodger_daemon.memory.git import RunningGits
from lodger_daemon.memory.published import CHECKOUT, Published
from lodger_daemon.memory.reading import shared_part, summarise_change
from lodger_daemon.memory.room import AgentRoom, Threads
from lodger_daemon.memory.seams import Seam
from lodger_daemon.memory.shared_folders import SharedFolders
from lodger_daemon.memory.shared_remote import SharingHub
from lodger_daemon.memory.syncing import BOX_FAULTS, RepositorySync
from lodger_daemon.randomness import Rng
from lodger_tools.box.contract import Boxes, BoxKey, BoxProfile

P = ParamSpec("P")
T = TypeVar("T")
_log = logging.getLogger(__name__)
_LOOK_AGAIN_S: Final = 60.0
"""How old what is known of the attached memories may be at a turn's start; the hub tells of changes while it is
connected, and this is for the time before and after."""


@dataclass(frozen=True, slots=True)
class SharingPlaces:
    """How shared memories appear on this machine."""

    hub: SharingHub
    inside: Callable[[str], str]
    """Where an agent's boxes show the one of this name."""
    boxes_changed: Callable[[AgentId], Awaitable[None]]
    """From now on the agent's boxes must show something else than before."""
    box_owner: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Workings:
    """What every repository of this machine is made with."""

    boxes: Boxes
    running: RunningGits
    threads: Threads
    clock: Clock
    rng: Rng
    seam: Seam
    memory_box: Callable[[AgentId], BoxKey]


@dataclass(slots=True)
class SharedOne:
    """One shared memory of one agent."""

    name: str
    role: ShareRole
    place: str
    """Where the agent finds it."""
    sync: RepositorySync
    part: tuple[str, int, str] | None = None
    """Its part of a prompt, as of a commit and within a budget."""


@dataclass(slots=True)
class _Attached:
    """What is known of one agent."""

    ones: dict[str, SharedOne] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    looking: asyncio.Task[None] | None = None
    look_again: bool = False
    look_again_at: float = 0.0


class SharedMemories:
    """
    Args:
        own_head: told what the hub has of an agent's own memory.
    """

    def __init__(
        self, agents: Path, places: SharingPlaces, workings: Workings, own_head: Callable[[AgentId, str], None]
    ) -> None:
        self._own_head = own_head
        self._folders = SharedFolders(agents)
        self._places = places
        self._workings = workings
        self._agents: dict[AgentId, _Attached] = {}
        self._closed = False

    def of(self, agent_id: AgentId) -> Mapping[str, SharedOne]:
        """Those attached here, by name."""
        return self._known(agent_id).ones

    def one(self, agent_id: AgentId, name: str) -> SharedOne:
        """Raises: MemoryUnavailable when it is not attached here."""
        found = self.of(agent_id).get(name)
        if found is None:
            raise MemoryUnavailable(f"no shared memory {name[:80]!r} of {agent_id} is on this machine")
        return found

    def set_aside(self, agent_id: AgentId) -> tuple[Path, ...]:
        """What was detached and lies here still."""
        return self._folders.set_aside(agent_id)

    async def aclose(self) -> None:
        self._closed = True
        looking = [known.looking for known in self._agents.values() if known.looking is not None]
        for task in looking:
            task.cancel()
        await asyncio.gather(*looking, return_exceptions=True)
        await asyncio.gather(*(one.sync.aclose() for known in self._agents.values() for one in known.ones.values()))

    def close_gits(self) -> None:
        for known in self._agents.values():
            for one in known.ones.values():
                one.sync.room.published.close()

    def take_up(self, agent_id: AgentId) -> None:
        """What an earlier daemon could not finish."""
        for one in self.of(agent_id).values():
            one.sync.take_up()

    def look(self, agent_id: AgentId) -> None:
        """Ask the hub what is attached, and see to it; returns at once."""
        known = self._known(agent_id)
        known.look_again = True
        if not self._closed and (known.looking is None or known.looking.done()):
            known.looking = asyncio.create_task(self._look(agent_id, known), name=f"shared memories of {agent_id}")

    def look_if_stale(self, agent_id: AgentId) -> None:
        if self._workings.clock.mono() >= self._known(agent_id).look_again_at:
            self.look(agent_id)

    async def looked(self, agent_id: AgentId, limit_s: float) -> None:
        """Wait until what is attached has been seen to, at most so long."""
        looking = self._known(agent_id).looking
        if looking is not None and not looking.done():
            await asyncio.wait({looking}, timeout=limit_s)

    def head_announced(self, name: str, head: str) -> None:
        """The hub has this head of a shared memory."""
        for agent_id, known in self._agents.items():
            one = known.ones.get(name)
            if one is None:
                continue
            if one.sync.room.published.exists():
                one.sync.announced(head)
            else:
                self.look(agent_id)

    async def freshen(self, agent_id: AgentId, limit_s: float) -> None:
        """Fetch where there may be something newer; gives up at the limit. What is attached is looked at beside: no
        turn waits for that."""
        self.look_if_stale(agent_id)
        await asyncio.gather(*(one.sync.freshen(limit_s) for one in self.of(agent_id).values()))

    async def import_commits(self, agent_id: AgentId, box: BoxKey) -> tuple[bool, str]:
        """Publish what the agent committed where it may write: whether anything moved, and what joins the result."""
        moved, texts = False, []
        for one in list(self.of(agent_id).values()):
            if one.role is not ShareRole.WRITE or one.sync.room.published.ref(CHECKOUT) is None:
                continue
            try:
                report = await one.sync.room.import_from(box)
            except (*BOX_FAULTS, MemoryFailure, OSError) as fault:
                texts.append(f"{subject_of(one.name)}: what you committed there is kept, not published yet: {fault}")
                continue
            moved = moved or report.moved
            texts.append(report.text)
        return moved, "\n".join(text for text in texts if text)

    def turn_ended(self, agent_id: AgentId, box: BoxKey | None) -> None:
        self.look_if_stale(agent_id)
        for one in self.of(agent_id).values():
            one.sync.request(box if one.sync.room.may_write else None, fetch=False)

    def reminders(self, agent_id: AgentId) -> tuple[str, ...]:
        return tuple(
            text
            for one in self.of(agent_id).values()
            for text in reminders_for(one.sync.room.state, one.place, one.name)
        )

    def heads(self, agent_id: AgentId) -> dict[str, str | None]:
        return {name: one.sync.room.published.head() for name, one in self.of(agent_id).items()}

    async def prompt_parts(self, agent_id: AgentId, heads: Mapping[str, str | None]) -> str:
        """What a prompt says of these, at these commits."""
        ones = self.of(agent_id)
        parts = [
            await self._part(ones[name], head, budget_bytes(len(heads)))
            for name, head in heads.items()
            if head is not None and name in ones
        ]
        return "\n".join(parts)

    async def changed(self, agent_id: AgentId, before: Mapping[str, str | None]) -> str:
        """What became of shared memories since the agent saw them at these commits; empty when nothing did."""
        ones = self.of(agent_id)
        told = [f"The shared memory {name} is no longer attached to you." for name in before if name not in ones]
        for name, one in ones.items():
            head = one.sync.room.published.head()
            if head is None or before.get(name) == head:
                continue
            told.append(await self._change(one, before.get(name), head, len(ones)))
        return "\n\n".join(text for text in told if text)

    async def _change(self, one: SharedOne, old: str | None, head: str, attached: int) -> str:
        room = one.sync.room
        if old is None:
            return "Attached to you now:\n" + await self._part(one, head, budget_bytes(attached))
        if not await room.local(room.published.has, old):
            return f"The shared memory {one.name} changed; read it again."
        return words_of_others(await room.local(summarise_change, room.published, old, head, one.name))

    async def _part(self, one: SharedOne, head: str, limit_bytes: int) -> str:
        room = one.sync.room
        if one.part is None or one.part[:2] != (head, limit_bytes):
            text = await room.local(shared_part, room.published, head, one.name, one.place, one.role, limit_bytes)
            one.part = (head, limit_bytes, text)
        return one.part[2]

    def _known(self, agent_id: AgentId) -> _Attached:
        known = self._agents.get(agent_id)
        if known is None:
            known = self._agents[agent_id] = _Attached()
            for name, role in self._folders.attached(agent_id).items():
                known.ones[name] = self._make(agent_id, name, role)
        return known

    async def _look(self, agent_id: AgentId, known: _Attached) -> None:
        while known.look_again:
            known.look_again = False
            known.look_again_at = self._workings.clock.mono() + _LOOK_AGAIN_S
            try:
                await self._see_to(agent_id, known)
            except Exception:  # noqa: BLE001 - the memories that are attached go on; the next look tries again
                _log.exception("the shared memories of %s could not be seen to", agent_id)

    async def _see_to(self, agent_id: AgentId, known: _Attached) -> None:
        async with known.lock:
            listed = await _on(self._workings.threads.network, self._places.hub.listed, agent_id)
            if listed is not None:
                here = {name: one.role for name, one in known.ones.items()}
                faulty = set[str]()
                for change in changes(here, listed.shared):
                    # What could not be detached is not attached anew with another right.
                    if change.name not in faulty and not await _apart(
                        agent_id, change.name, partial(self._carry_out, agent_id, known, change)
                    ):
                        faulty.add(change.name)
            for one in list(known.ones.values()):
                await _apart(agent_id, one.name, partial(self._prepare, agent_id, one))
        if listed is not None:
            # Word of these may have gone out while this machine was away.
            for name, head in listed.heads.items():
                if name in known.ones:
                    known.ones[name].sync.announced(head)
            if listed.own_head is not None:
                self._own_head(agent_id, listed.own_head)

    async def _carry_out(self, agent_id: AgentId, known: _Attached, change: Change) -> None:
        local, folders = self._workings.threads.local, self._folders
        self._workings.seam("before changing what is attached")
        match change:
            case Attach(name, role):
                await _on(local, folders.attach, agent_id, name, role)
                known.ones[name] = self._make(agent_id, name, role)
            case Detach(name):
                one = known.ones[name]
                await one.sync.aclose()
                room = one.sync.room
                # Under its lock: work that was under way on another thread has come to its end.
                await room.local(folders.detach, agent_id, name, room.now_s())
                room.published.close()
                del known.ones[name]
            case Widen(name):
                one = known.ones[name]
                await one.sync.aclose()
                await one.sync.room.local(folders.set_role, agent_id, name, ShareRole.WRITE)
                one.sync.room.published.close()
                known.ones[name] = self._make(agent_id, name, ShareRole.WRITE)
            case _:
                assert_never(change)
        self._workings.seam("after changing what is attached")
        await self._places.boxes_changed(agent_id)

    async def _prepare(self, agent_id: AgentId, one: SharedOne) -> None:
        room = one.sync.room
        if not room.published.exists() and not await self._found(one):
            return
        if room.published.ref(CHECKOUT) is None:
            owner = self._places.box_owner
            await _on(self._workings.threads.local, self._folders.make_checkout, agent_id, one.name, owner)
            await self._places.boxes_changed(agent_id)
            await one.sync.first_checkout()
        if one.role is ShareRole.WRITE:
            one.sync.take_up()

    async def _found(self, one: SharedOne) -> bool:
        """Whether the repository is here now. An empty one is begun by whoever may write it."""
        room = one.sync.room
        result = await one.sync.adopt()
        match result:
            case Adopted():
                return True
            case NotThere() if one.role is ShareRole.WRITE:
                await room.local(found, room.published, first_shared_files(one.name), room.now_s())
                return True
            case NotThere():
                detail, outcome = "nothing is in it yet", SyncOutcome.SKIPPED
            case NotHad(reason=detail):
                outcome = SyncOutcome.PUSH_FAILED
            case _:
                assert_never(result)
        await room.save(SyncState(outcome=outcome, detail=detail, at_s=self._workings.clock.wall()))
        return False

    def _make(self, agent_id: AgentId, name: str, role: ShareRole) -> SharedOne:
        works, folder = self._workings, self._folders.folder(agent_id, name)
        published = Published(folder, identity_of(agent_id, agent_id), works.running, works.seam, shared=True)
        place, checkout_here = self._places.inside(name), str(self._folders.checkout(agent_id, name))
        reads = role is ShareRole.READ
        # The agent's own boxes cannot change what it may only read, so a box of its own brings that along.
        own_box = BoxKey(agent_id, checkout_here, BoxProfile.MEMORY_WORKER)
        checkout = Checkout(works.boxes, checkout_here if reads else place, agent_id, works.rng, shared=True)
        room = AgentRoom(
            published,
            checkout,
            works.boxes,
            works.clock,
            works.threads,
            shared=name,
            set_aside=(lambda: self._set_checkout_aside(agent_id, name, room.now_s())) if reads else None,
        )
        sync = RepositorySync(
            room,
            agent_id,
            self._places.hub.remote(name),
            (lambda: own_box) if reads else (lambda: works.memory_box(agent_id)),
            works.clock,
            works.rng,
            _nothing,
        )
        return SharedOne(name, role, place, sync)

    def _set_checkout_aside(self, agent_id: AgentId, name: str, now_s: int) -> None:
        self._folders.set_checkout_aside(agent_id, name, now_s)
        self._folders.make_checkout(agent_id, name, self._places.box_owner)


async def _apart(agent_id: AgentId, name: str, work: Callable[[], Awaitable[None]]) -> bool:
    """Whether it went well. A fault of one memory, which others write as well, keeps no other from the agent."""
    try:
        await work()
    except Exception:  # noqa: BLE001 - whatever it is, the next look tries again
        _log.exception("the shared memory %s of %s could not be seen to", name, agent_id)
        return False
    return True


async def _on(threads: Executor, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    return await asyncio.get_running_loop().run_in_executor(threads, partial(work, *args, **kwargs))


def _nothing() -> None:
    pass
