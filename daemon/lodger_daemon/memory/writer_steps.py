"""How one background writer goes from state to state, each step durable before the next."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol, TypeVar, assert_never

from lodger_daemon.clock import Clock
from lodger_daemon.identity import AgentId
from lodger_daemon.memory.checkout import TOO_LARGE_AT_ONCE, Checkout, NoPack
from lodger_daemon.memory.contract import SyncStatus
from lodger_daemon.memory.core.sync_state import Conflict
from lodger_daemon.memory.core.writers import KEPT, OPEN, Writer, WriterId, WriterKind, WriterState
from lodger_daemon.memory.errors import MemoryFailure, MemoryUnavailable, RefMoved, WriterRefused, WriterSkip
from lodger_daemon.memory.published import Published
from lodger_daemon.memory.seams import Seam, no_seam
from lodger_daemon.memory.work_tree_box import Gathered, gather
from lodger_daemon.memory.work_tree_merge import (
    Apart,
    Landed,
    MergeResult,
    Refused,
    TakenIn,
    let_go,
    merge,
    take_in,
    writers_with_refs,
)
from lodger_daemon.memory.work_trees import WorkTrees
from lodger_daemon.randomness import Rng
from lodger_daemon.store import memory_writer_rows as rows
from lodger_daemon.store.database import Database
from lodger_daemon.store.errors import StoreError
from lodger_tools.box.contract import Boxes, BoxKey, BoxLost, BoxProfile, BoxUnavailable

T = TypeVar("T")
_log = logging.getLogger(__name__)

REFRESH_LIMIT_S: Final = 30.0
"""How long a merge waits for the remote. Without it the merge is onto what is here; the sync does the rest."""
FAULTS: Final = (MemoryFailure, StoreError, OSError, BoxUnavailable, BoxLost)
"""What passes by itself, mostly: a disk that is full, a box that cannot be had."""
_RACES: Final = 5


class WritersMemory(Protocol):
    """What writers ask of the memory of agents."""

    async def look(self, agent_id: AgentId, work: Callable[[Published, str], T]) -> T: ...

    def packs(self, agent_id: AgentId, commit: str) -> AsyncIterator[bytes]: ...

    def conflict(self, agent_id: AgentId) -> Conflict | None: ...

    def sync_now(self, agent_id: AgentId, *, fetch: bool) -> None: ...

    async def settled(self, agent_id: AgentId, limit_s: float) -> SyncStatus: ...

    def turn_ended(self, agent_id: AgentId, box: BoxKey | None) -> None: ...


@dataclass(frozen=True, slots=True)
class WriterServices:
    """What background writers are made with."""

    database: Database
    memory: WritersMemory
    boxes: Boxes
    trees: WorkTrees
    clock: Clock
    rng: Rng
    seam: Seam = no_seam
    """For crash tests."""


class WriterSteps:
    def __init__(self, services: WriterServices) -> None:
        self._services = services

    async def next(self, writer: Writer, why: str) -> Writer:
        """One step on for a writer that is open.

        Args:
            why: for one that has not finished: what ends it.

        Raises: `FAULTS`; then it is as it was.
        """
        match writer.state:
            case WriterState.CREATED:
                return await self.change(writer, replace(writer, state=WriterState.ABANDONED, reason=why))
            case WriterState.RUNNING:
                return await self.change(writer, await self._rescued(writer, why))
            case WriterState.FINISHED:
                changed = await self.change(writer, await self._taken_in(writer))
                self._services.seam("after taking in a writer's commits")
                return changed
            case WriterState.MERGING:
                changed = await self.change(writer, await self._merged(writer))
                self._services.seam("after noting how a writer ended")
                return changed
            case _:
                raise WriterRefused(WriterSkip.OTHER_STATE, f"{writer.id} has ended: {writer.state}")

    async def _rescued(self, writer: Writer, why: str) -> Writer:
        found = await self._bring_out(writer)
        match found:
            case None:
                return replace(writer, state=WriterState.ABANDONED, reason=f"{why}; it had written nothing")
            case TakenIn(tip):
                return replace(writer, state=WriterState.RESCUED, tip=tip, reason=why)
            case Refused():
                return replace(writer, state=WriterState.RESCUED, reason=f"{why}; {_words(found)}")
            case _:
                assert_never(found)

    async def _taken_in(self, writer: Writer) -> Writer:
        found = await self._bring_out(writer)
        match found:
            case None if writer.report:
                return replace(writer, state=WriterState.UNCHANGED)
            case None:
                reason = "it ended without a report and had written nothing"
                return replace(writer, state=WriterState.ABANDONED, reason=reason)
            case TakenIn(tip):
                return replace(writer, state=WriterState.MERGING, tip=tip)
            case Refused():
                return replace(writer, state=WriterState.RESCUED, reason=_words(found))
            case _:
                assert_never(found)

    async def _bring_out(self, writer: Writer) -> TakenIn | Refused | None:
        """What the tree holds beyond its base, into published; None when there is nothing. Nothing of the writer's runs
        any more: its box is ended first."""
        box = self.box(writer)
        await self._services.boxes.end(box)
        key = f"memory/{writer.agent_id}/{self._services.rng.uuid()}"
        gathered = await gather(self._services.boxes, box, self.tree(writer), key)
        if gathered is None:
            return Refused(()) if await self._tree_is_there(writer) else None
        refusal: Refused | None = None
        for tip in _candidates(gathered, writer.base):
            result = await self._import(writer, box, tip)
            if isinstance(result, TakenIn):
                return result
            refusal = refusal or result
        return refusal

    async def _import(self, writer: Writer, box: BoxKey, tip: str) -> TakenIn | Refused:
        assert writer.base is not None
        base = writer.base
        pack = await self.checkout(writer).pack(box, tip, (base,))
        if isinstance(pack, NoPack):
            return Refused((TOO_LARGE_AT_ONCE,) if pack is NoPack.TOO_LARGE else ())
        now_s = int(self._services.clock.wall())
        return await self._services.memory.look(
            writer.agent_id, lambda published, _: take_in(published, writer.id, pack, base, tip, now_s)
        )

    async def _merged(self, writer: Writer) -> Writer:
        # What another machine pushed comes first; without an answer the merge is onto what is known of it.
        self._services.memory.sync_now(writer.agent_id, fetch=True)
        await self._services.memory.settled(writer.agent_id, REFRESH_LIMIT_S)
        result = await self._merge(writer)
        match result:
            case Landed(head):
                return replace(writer, state=WriterState.MERGED, head=head)
            case Apart(paths):
                reason = "main says something else in the same places"
                return replace(writer, state=WriterState.CONFLICTED, paths=paths, reason=reason)
            case Refused():
                return replace(writer, state=WriterState.RESCUED, reason=_words(result))
            case _:
                assert_never(result)

    async def _merge(self, writer: Writer) -> MergeResult:
        assert writer.base is not None
        assert writer.tip is not None
        tip, base, now_s = writer.tip, writer.base, int(self._services.clock.wall())

        def onto_main(published: Published, head: str) -> MergeResult:
            conflict = self._services.memory.conflict(writer.agent_id)
            unseen = () if conflict is None or writer.kind is WriterKind.REPAIR else conflict.paths
            return merge(published, writer.id, tip, base, unseen, now_s)

        for _ in range(_RACES):
            try:
                return await self._services.memory.look(writer.agent_id, onto_main)
            except RefMoved:
                continue
        raise RefMoved("main kept moving")

    async def clean_up(self, writer: Writer) -> None:
        """What is not needed any more goes, the folder last: while it is there, this is done again after a crash."""
        self._services.seam("before cleaning up after a writer")
        await self._services.boxes.end(self.box(writer))
        keep_tip = writer.state in KEPT and writer.tip is not None
        # What it wrote is in its tree only, and is taken in from there when a person says so.
        keep_tree = writer.state is WriterState.RESCUED and writer.tip is None
        try:
            await self._services.memory.look(
                writer.agent_id,
                lambda published, _: let_go(published, writer.id, keep_tip=keep_tip, keep_base=keep_tree),
            )
        except MemoryUnavailable:
            pass
        self._services.seam("before removing a writer's tree")
        if keep_tree:
            return
        if not await asyncio.to_thread(self._services.trees.remove, writer.agent_id, writer.id):
            _log.warning("the tree of %s could not be removed whole; it is tried again at the next start", writer.id)

    async def sweep(self) -> None:
        """Remove what a crash left of writers that have ended."""
        found = await asyncio.to_thread(self._services.trees.writers)
        for agent_id in dict.fromkeys(agent for agent, _ in found):
            try:
                named = await self._services.memory.look(agent_id, lambda published, _: writers_with_refs(published))
                await self._sweep_agent(agent_id, (*(one for agent, one in found if agent == agent_id), *named))
            except FAULTS as fault:
                _log.warning("trees of %s were not tidied up: %s", agent_id, fault)

    async def _sweep_agent(self, agent_id: AgentId, names: Iterable[WriterId]) -> None:
        for name in dict.fromkeys(names):
            writer = await self._services.database.read(partial(rows.get, writer_id=name))
            if writer is None:
                # Its row was lost or forgotten; what it wrote may be all there is of it.
                _log.warning("%s of %s is not on record and is left as it is", name, agent_id)
            elif writer.state not in OPEN:
                await self.clean_up(writer)

    async def change(self, old: Writer, new: Writer) -> Writer:
        """On record when it returns. Raises: StateConflict when another step was faster."""
        if new.state not in OPEN and new.ended_at is None:
            new = replace(new, ended_at=self._services.clock.wall())
        await self._services.database.write(lambda connection: rows.change(connection, new, old.state))
        return new

    async def _tree_is_there(self, writer: Writer) -> bool:
        return await asyncio.to_thread(self._services.trees.tree(writer.agent_id, writer.id).is_dir)

    def tree(self, writer: Writer) -> str:
        return str(self._services.trees.tree(writer.agent_id, writer.id))

    def box(self, writer: Writer) -> BoxKey:
        return BoxKey(writer.agent_id, self.tree(writer), BoxProfile.MEMORY_WORKER)

    def checkout(self, writer: Writer) -> Checkout:
        return Checkout(self._services.boxes, self.tree(writer), writer.agent_id, self._services.rng)


def _candidates(gathered: Gathered, base: str | None) -> tuple[str, ...]:
    """With what was left uncommitted, and if that is not valid without it."""
    return tuple(tip for tip in dict.fromkeys((gathered.whole, gathered.committed)) if tip != base)


def _words(refused: Refused) -> str:
    listed = "; ".join(str(finding) for finding in refused.findings[:5])
    return f"what it wrote is no valid memory: {listed or 'its tree could not be read'}"
