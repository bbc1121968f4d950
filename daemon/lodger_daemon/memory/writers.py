"""Background writers of agents' memory: each in a tree and a box of its own, and what it committed merged into main.

A writer sees only its tree, which it may write, and the part of the transcript it was given, which it may read; it has
no network. Every state is durable before what follows from it, so after a crash each writer goes on from where it was:
one that ran is ended and what it wrote is kept, one that had finished is merged. Only a merge, or an end with a report
and nothing to write down, counts the transcript as read.
"""

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

from lodger_daemon.clock import WallTime
from lodger_daemon.identity import AgentId
from lodger_daemon.memory.checkout import CheckoutWord
from lodger_daemon.memory.core.commits import Identity
from lodger_daemon.memory.core.writers import (
    KEPT,
    OPEN,
    Writer,
    WriterId,
    WriterKind,
    WriterState,
    may_begin_at,
)
from lodger_daemon.memory.errors import MemoryUnavailable, WriterRefused, WriterSkip
from lodger_daemon.memory.published import Published
from lodger_daemon.memory.transcript_part import part_after
from lodger_daemon.memory.work_tree_merge import hold_base
from lodger_daemon.memory.work_trees import TRANSCRIPT_NAME
from lodger_daemon.memory.writer_steps import FAULTS, WriterServices, WriterSteps
from lodger_daemon.store import memory_writer_rows as rows
from lodger_daemon.store.errors import ConstraintViolated, StateConflict
from lodger_daemon.waiting import set_within
from lodger_tools.box.contract import BoxKey

T = TypeVar("T")
_log = logging.getLogger(__name__)

TIME_LIMIT_S: Final = 30 * 60.0
"""Of a writer that is given no other: a reflection of the reference takes minutes."""
MOST_REPORT_CHARS: Final = 30_000
"""Some ten pages: a person reads it, and it lies in the database."""
KEPT_S: Final = 90 * 24 * 3600.0
"""How long the record of a writer is kept that left nothing to merge."""
_AGAIN_S: Final = 60.0
_SHOWN: Final = 100


@dataclass(frozen=True, slots=True)
class OpenWriter:
    """Where a writer works."""

    id: WriterId
    box: BoxKey
    tree: str
    """A git repository, as the box shows it. What is committed on its branch counts."""
    transcript: str | None
    """A file of one JSON object a line, as the box shows it."""
    ended: asyncio.Event
    """Set when the writer has been ended, by whomever: its box is gone."""


class Writers:
    """
    Args:
        reads_inside: where the box of a writer shows what it is given to read.
    """

    def __init__(self, services: WriterServices, *, reads_inside: str) -> None:
        self._services = services
        self._steps = WriterSteps(services)
        self._reads_inside = reads_inside
        self._tasks: set[asyncio.Task[Any]] = set()
        self._locks: dict[WriterId, asyncio.Lock] = {}
        self._ended: dict[WriterId, asyncio.Event] = {}

    async def start(self) -> None:
        """Take up what an earlier daemon left; boxes must have been adopted. Raises: StoreError."""
        before = WallTime(self._services.clock.wall() - KEPT_S)
        self._services.database.write_soon(lambda connection: rows.forget(connection, before))
        still_open = await self._services.database.read(rows.open_ones)
        for writer in still_open:
            self._own(self._keep_settling(writer.id, "the daemon ended while it ran"))
        self._own(self._steps.sweep())

    async def aclose(self) -> None:
        """What is open is taken up by the next daemon."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def open(
        self,
        agent_id: AgentId,
        kind: WriterKind,
        *,
        with_transcript: bool = False,
        asked: bool = False,
        limit_s: float = TIME_LIMIT_S,
    ) -> OpenWriter:
        """A tree at published main and a box for it.

        Args:
            with_transcript: what the agent's conversations gained since the last writer of the kind that counts.
            asked: a person wants it now, however often it has failed.
            limit_s: it is ended after so long, and what it has written by then is kept.

        Raises: WriterRefused, MemoryFailure, BoxUnavailable, BoxLost, StoreError, OSError.
        """
        if not asked:
            endings = await self._services.database.read(lambda connection: rows.endings(connection, agent_id, kind))
            at = may_begin_at(endings)
            if at is not None and at > self._services.clock.wall():
                wait_s = round(at - self._services.clock.wall())
                raise WriterRefused(WriterSkip.TOO_EARLY, f"the last {kind} did not end well; the next in {wait_s} s")
        await self._merge_kept(agent_id, kind)
        writer, text = await self._on_record(agent_id, kind, with_transcript=with_transcript)
        return await self._whole(self._open(writer, text, limit_s))

    async def done(self, writer_id: WriterId, report: str) -> Writer:
        """The writer has ended well; merge what it committed. Call it with no command left in the box.

        The state that comes back may be `finished` or `merging`, when a box or the disk is not to be had just now: then
        it goes on by itself.

        Args:
            report: what it says of its work; without one, nothing written counts as no work done.

        Raises: WriterRefused when it does not run any more; StoreError.
        """
        return await self._whole(self._done(writer_id, report))

    async def cancel(self, writer_id: WriterId, why: str) -> Writer:
        """End a writer that runs; what it has written is kept. One that has finished goes on to its merge.

        Raises: WriterRefused, StoreError.
        """
        writer = await self._known(writer_id)
        if writer.state not in OPEN:
            raise WriterRefused(WriterSkip.OTHER_STATE, f"{writer_id} has ended already: {writer.state}")
        return await self._whole(self._settle_or_later(writer_id, why))

    async def merge_again(self, writer_id: WriterId) -> Writer:
        """Try to merge what is kept of a writer onto main as it is now. Raises: WriterRefused, StoreError."""
        writer = await self._known(writer_id)
        if writer.state not in KEPT:
            raise WriterRefused(WriterSkip.OTHER_STATE, f"{writer_id} keeps nothing to merge: it is {writer.state}")
        if writer.tip is None:
            tree = self._services.trees.tree(writer.agent_id, writer_id)
            raise WriterRefused(WriterSkip.OTHER_STATE, f"what {writer_id} wrote is no valid memory; it lies in {tree}")
        try:
            await self._steps.change(
                writer, replace(writer, state=WriterState.MERGING, ended_at=None, paths=(), reason="")
            )
        except StateConflict as conflict:
            raise WriterRefused(WriterSkip.OTHER_STATE, str(conflict)) from conflict
        except ConstraintViolated:
            raise WriterRefused(WriterSkip.BUSY, f"another {writer.kind} is at work; wait for its end") from None
        return await self._whole(self._settle_or_later(writer_id, ""))

    async def drop(self, writer_id: WriterId) -> Writer:
        """Throw away what is kept of a writer. Raises: WriterRefused, MemoryFailure, StoreError."""
        writer = await self._known(writer_id)
        if writer.state not in KEPT:
            raise WriterRefused(WriterSkip.OTHER_STATE, f"{writer_id} keeps nothing: it is {writer.state}")
        dropped = replace(writer, state=WriterState.ABANDONED, reason="dropped by a person")
        try:
            await self._steps.change(writer, dropped)
        except StateConflict as conflict:
            raise WriterRefused(WriterSkip.OTHER_STATE, str(conflict)) from conflict
        await self._whole(self._steps.clean_up(dropped))
        return dropped

    async def of(self, agent_id: AgentId) -> tuple[Writer, ...]:
        """Latest first."""
        return await self._services.database.read(lambda connection: rows.of_agent(connection, agent_id, _SHOWN))

    async def unsettled(self) -> tuple[Writer, ...]:
        """Of all agents: those that are open and those of which something is kept, oldest first."""
        return await self._services.database.read(rows.unsettled)

    # -- opening --

    async def _on_record(
        self, agent_id: AgentId, kind: WriterKind, *, with_transcript: bool
    ) -> tuple[Writer, str | None]:
        now = self._services.clock.wall()
        name = WriterId(f"{kind}-{int(now)}-{self._services.rng.uuid()[:8]}")
        writer = Writer(name, agent_id, kind, WriterState.CREATED, now)
        text: str | None = None
        if with_transcript:
            found = await self._services.database.read(
                lambda connection: part_after(connection, agent_id, rows.mark(connection, agent_id, kind))
            )
            if found is None:
                raise WriterRefused(WriterSkip.NOTHING_TO_READ, f"nothing new was said since the last {kind}")
            writer, text = replace(writer, reads=found[0]), found[1]
        try:
            await self._services.database.write(lambda connection: rows.begin(connection, writer))
        except ConstraintViolated:
            raise WriterRefused(WriterSkip.BUSY, f"a {kind} of {agent_id} is at work already") from None
        return writer, text

    async def _open(self, writer: Writer, text: str | None, limit_s: float) -> OpenWriter:
        self._services.seam("writer on record")
        try:
            base, name = await self._services.memory.look(writer.agent_id, partial(_begin, writer.id))
            await asyncio.to_thread(self._services.trees.make, writer.agent_id, writer.id, text)
            self._services.seam("after making a writer's folders")
            identity = Identity(f"{name.name} ({writer.kind})", name.email)
            packs = self._services.memory.packs(writer.agent_id, base)
            answer = await self._steps.checkout(writer).install(self._steps.box(writer), base, packs, identity)
            if answer.word is not CheckoutWord.INSTALLED:
                raise MemoryUnavailable(f"a tree for {writer.id} could not be made: {answer.word} {answer.detail}")
            self._services.seam("after making a writer's tree")
            await self._steps.change(writer, replace(writer, state=WriterState.RUNNING, base=base))
        except Exception as fault:
            self._own(self._keep_settling(writer.id, f"it could not begin: {fault}"[:400]))
            raise
        ended = self._ended.setdefault(writer.id, asyncio.Event())
        self._own(self._end_after(writer.id, limit_s, ended))
        transcript = None if text is None else f"{self._reads_inside}/{TRANSCRIPT_NAME}"
        return OpenWriter(writer.id, self._steps.box(writer), self._steps.tree(writer), transcript, ended)

    async def _end_after(self, writer_id: WriterId, limit_s: float, ended: asyncio.Event) -> None:
        if not await set_within(ended, limit_s, self._services.clock):
            await self._keep_settling(writer_id, f"it took longer than {limit_s:g} s", only=WriterState.RUNNING)

    async def _merge_kept(self, agent_id: AgentId, kind: WriterKind) -> None:
        """What did not fit may fit by now; a new writer would read the same part of the transcript once more."""
        for writer in await self._services.database.read(lambda connection: rows.kept(connection, agent_id, kind)):
            if writer.state is WriterState.CONFLICTED:
                try:
                    await self.merge_again(writer.id)
                except WriterRefused as refusal:
                    _log.info("%s was not tried again: %s", writer.id, refusal)

    # -- ending --

    async def _done(self, writer_id: WriterId, report: str) -> Writer:
        async with self._lock(writer_id):
            writer = await self._known(writer_id)
            if writer.state is not WriterState.RUNNING:
                raise WriterRefused(WriterSkip.OTHER_STATE, f"{writer_id} does not run: {writer.state} {writer.reason}")
            self._services.seam("before noting that a writer is done")
            await self._steps.change(
                writer, replace(writer, state=WriterState.FINISHED, report=report.strip()[:MOST_REPORT_CHARS])
            )
            self._services.seam("after noting that a writer is done")
        return await self._settle_or_later(writer_id, "")

    async def _settle_or_later(self, writer_id: WriterId, why: str) -> Writer:
        try:
            return await self._settle(writer_id, why)
        except WriterRefused:
            raise
        except Exception as fault:  # noqa: BLE001 - told whole in the log
            _tell(writer_id, fault)
            self._own(self._keep_settling(writer_id, why, first_wait_s=_AGAIN_S))
            return await self._known(writer_id)

    async def _keep_settling(
        self, writer_id: WriterId, why: str, *, only: WriterState | None = None, first_wait_s: float = 0.0
    ) -> None:
        """Until it has ended, through faults that pass."""
        wait_s = first_wait_s
        while True:
            if wait_s:
                await self._services.clock.sleep(wait_s)
            try:
                await self._settle(writer_id, why, only=only)
                return
            except WriterRefused:
                return
            except Exception as fault:  # noqa: BLE001 - told whole in the log
                _tell(writer_id, fault)
            wait_s = min(max(wait_s * 2, _AGAIN_S), 3600.0)

    async def _settle(self, writer_id: WriterId, why: str, *, only: WriterState | None = None) -> Writer:
        """Take a writer to its end, whatever state it is in. Raises: `FAULTS`, and then it is as far as it came."""
        async with self._lock(writer_id):
            writer = await self._known(writer_id)
            if only is not None and writer.state is not only:
                return writer
            while writer.state in OPEN:
                writer = await self._steps.next(writer, why)
            self._ended.pop(writer_id, asyncio.Event()).set()
            await self._steps.clean_up(writer)
        self._locks.pop(writer_id, None)
        if writer.state is WriterState.MERGED:
            self._services.memory.turn_ended(writer.agent_id, None)
        return writer

    # -- small things --

    async def _known(self, writer_id: WriterId) -> Writer:
        writer = await self._services.database.read(lambda connection: rows.get(connection, writer_id))
        if writer is None:
            raise WriterRefused(WriterSkip.UNKNOWN, f"there is no writer {writer_id[:80]!r}")
        return writer

    def _lock(self, writer_id: WriterId) -> asyncio.Lock:
        return self._locks.setdefault(writer_id, asyncio.Lock())

    def _own(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget_task)
        return task

    def _forget_task(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            _log.warning("work on a writer ended with %r", fault)

    async def _whole(self, work: Coroutine[Any, Any, T]) -> T:
        """Once begun it goes on, whether anybody waits or not."""
        return await asyncio.shield(self._own(work))


def _begin(writer: WriterId, published: Published, head: str) -> tuple[str, Identity]:
    hold_base(published, writer, head)
    return head, published.identity


def _tell(writer_id: WriterId, fault: Exception) -> None:
    """One that passes in a line. One of ours is told whole, and passes, too: an open writer lets no other begin."""
    if isinstance(fault, FAULTS):
        _log.warning("%s waits: %s", writer_id, fault)
    else:
        _log.error("%s waits after a fault of ours", writer_id, exc_info=fault)
