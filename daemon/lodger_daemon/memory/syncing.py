"""Keeping one repository level with its remote, beside everything: never two syncs at a time, and none is forgotten."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from lodger_daemon.clock import Clock, WallTime
from lodger_daemon.identity import AgentId
from lodger_daemon.memory.checkout import CheckoutAnswer, CheckoutWord
from lodger_daemon.memory.contract import SyncOutcome, SyncStatus
from lodger_daemon.memory.core.remote_answers import again_wait_s
from lodger_daemon.memory.core.sync_state import SyncState, dated
from lodger_daemon.memory.exchange import QUIET, Exchange, Exchanged, joined_state, noting_import, with_checkout
from lodger_daemon.memory.founding import Adopted, AdoptResult, NotThere, adopt
from lodger_daemon.memory.published import CHECKOUT, REMOTE, Published
from lodger_daemon.memory.remote import Remote
from lodger_daemon.memory.room import AgentRoom
from lodger_daemon.randomness import Rng
from lodger_tools.box.contract import BoxKey, BoxLost, BoxUnavailable

_log = logging.getLogger(__name__)
_KEPT_GITS_IDLE_S: Final = 60.0
"""Two gits of some 5 MB each per repository are kept this long after the last sync."""
_ASK_AGAIN_S: Final = 60.0
"""How old what is known of a remote may be at a turn's start, if it announces nothing."""
BOX_FAULTS: Final = (BoxUnavailable, BoxLost)


class RepositorySync:
    """One repository's room and what is asked of its worker.

    Args:
        agent_id: as whom the remote is asked.
        remote: None means that this repository stays on this machine.
        memory_box: the box for work on the checkout when the agent's own is not at hand.
        after_sync: told after each sync.
    """

    def __init__(
        self,
        room: AgentRoom,
        agent_id: AgentId,
        remote: Remote | None,
        memory_box: Callable[[], BoxKey],
        clock: Clock,
        rng: Rng,
        after_sync: Callable[[], None],
    ) -> None:
        self.room = room
        self.prepare_lock = asyncio.Lock()
        self.heard = False
        """Whether the remote has been asked, or has taken a push, since this process began."""
        self._agent_id = agent_id
        self._remote = remote
        self._memory_box = memory_box
        self._clock = clock
        self._rng = rng
        self._after_sync = after_sync
        self._requested = False
        self._box: BoxKey | None = None
        self._fetch = False
        self._announced: str | None = None
        self.ask_again_at = 0.0
        """From this monotonic time on, a remote that announces nothing is asked again."""
        self._worker: asyncio.Task[None] | None = None
        self._slow: asyncio.Task[None] | None = None
        """A worker that one turn has waited for in vain: a remote that hangs would cost every turn as much, until git
        gives it up."""
        self._later: asyncio.Task[None] | None = None
        """Waits to try again, or to end the kept gits."""
        self._closed = False

    async def aclose(self) -> None:
        """What was not pushed is pushed after the next start."""
        self._closed = True
        tasks = [task for task in (self._worker, self._later) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def adopt(self) -> AdoptResult:
        """Have the remote's repository here, if it has one. Raises: MemoryFailure."""
        if self._remote is None:
            return NotThere()
        room = self.room
        room.published.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        result = await room.network(adopt, room.published, self._agent_id, self._remote, room.now_s())
        if isinstance(result, Adopted):
            self.heard = True
            await room.save(SyncState(outcome=SyncOutcome.CLEAN, at_s=self._clock.wall()))
        return result

    async def first_checkout(self) -> None:
        """Without a box the turn goes on: tools refuse anyway, and the next import tries again."""
        try:
            await self.room.import_from(self._memory_box())
        except BOX_FAULTS as fault:
            _log.warning("the checkout of %s waits for a box: %s", self.room.published.folder, fault)

    def take_up(self) -> None:
        """Begin the sync that an earlier daemon could not finish, or died before it began."""
        published = self.room.published
        # The refs tell; the stored state is that of the last sync, and commits may have come after it.
        if self._remote is not None and published.head() != published.ref(REMOTE):
            self.request(None, fetch=False)

    def request(self, box: BoxKey | None, *, fetch: bool) -> None:
        """Start a sync beside everything; returns at once.

        Args:
            fetch: whether the remote is asked for newer memory even when there is no sign of any.
        """
        self._requested = True
        self._box = box or self._box
        self._fetch = self._fetch or fetch
        if self._worker is None or self._worker.done():
            if self._closed:
                return
            if self._later is not None and self._later is not asyncio.current_task():
                self._later.cancel()
            self._worker = asyncio.create_task(self._work(), name=f"memory sync {self.room.published.folder.name}")

    def announced(self, head: str) -> None:
        """The remote has this head."""
        self._announced = head
        if self.room.published.exists() and self._stale():
            self.request(None, fetch=True)

    async def freshen(self, limit_s: float) -> None:
        """Fetch when there may be newer memory; gives up at the limit, never raises for a remote's fault."""
        if self._remote is None or not self.room.published.exists() or not self._stale():
            return
        failing = self.room.state.failures > 0
        self.request(None, fetch=True)
        worker = self._worker
        if failing or worker is None or worker is self._slow:
            return
        await self.settled(limit_s)
        if not worker.done():
            self._slow = worker

    async def settled(self, limit_s: float) -> SyncStatus:
        """Wait until no sync runs, at most `limit_s`."""
        if self._worker is not None and not self._worker.done():
            await asyncio.wait({self._worker}, timeout=limit_s)
        return self.status()

    def status(self) -> SyncStatus:
        state = self.room.state
        at = None if state.at_s is None else WallTime(state.at_s)
        since = None if state.since_s is None else WallTime(state.since_s)
        return SyncStatus(state.outcome, self.room.published.head(), state.ahead, at, state.detail, since)

    def _stale(self) -> bool:
        seen = self.room.published.ref(REMOTE)
        if self._remote is not None and not self._remote.announces:
            return self._clock.mono() >= self.ask_again_at
        if self._announced is None:
            return not self.heard
        if self._announced == self.room.published.head():
            # Our own push, announced before it returned, unless nothing is being pushed.
            return self._announced != seen and (self._worker is None or self._worker.done())
        return self._announced != seen

    async def _work(self) -> None:
        while self._requested:
            box, fetch = self._box, self._fetch or (self._announced is not None and self._stale())
            self._requested, self._box, self._fetch = False, None, False
            try:
                await self._sync(box, fetch)
            except Exception as fault:  # noqa: BLE001 - one broken repository must not end syncing; the fault is shown
                _log.exception("the memory sync of %s failed", self.room.published.folder)
                state = self.room.state
                failed = replace(
                    state,
                    outcome=SyncOutcome.PUSH_FAILED,
                    detail=f"{type(fault).__name__}: {fault}"[:400],
                    failures=state.failures + 1,
                    at_s=self._clock.wall(),
                )
                self.room.state = dated(state, failed)
        self._later = asyncio.create_task(self._afterwards(), name=f"memory rest {self.room.published.folder.name}")

    async def _sync(self, box: BoxKey | None, fetch: bool) -> None:
        room = self.room
        if not room.published.exists():
            return
        dirty = room.state.dirty
        if box is not None:
            try:
                await room.import_from(box)
                dirty = await room.checkout.dirty(box)
            except BOX_FAULTS as fault:
                _log.info("the checkout of %s was not looked at: %s", room.published.folder, fault)
        done = await self._exchange(fetch)
        ahead = 0
        if self._remote is not None and done.outcome not in QUIET:
            ahead = await room.local(_ahead, room.published)
        state = joined_state(replace(room.state, dirty=dirty), done, ahead, self._clock.wall())
        # What could not be imported comes first: the checkout is given the side that the agent is told to merge.
        answer = await self._bring_along(noting_import(state, room.state), box)
        await room.save(with_checkout(noting_import(state, room.state), answer))
        await room.weigh()
        await room.keep_house(has_remote=self._remote is not None)
        if not self._closed:
            self._after_sync()

    async def _exchange(self, fetch: bool) -> Exchanged:
        if self._remote is None:
            return Exchanged(SyncOutcome.SKIPPED, "no remote is configured")
        done = await Exchange(self.room, self._agent_id, self._remote, self._clock, self._rng).run(fetch)
        if done.outcome is not SyncOutcome.PUSH_FAILED:
            self.heard = self.heard or fetch or done.outcome is SyncOutcome.PUSHED
        if fetch:
            self.ask_again_at = self._clock.mono() + _ASK_AGAIN_S
        return done

    async def _bring_along(self, state: SyncState, box: BoxKey | None) -> CheckoutAnswer | None:
        room, conflict = self.room, state.conflict
        if conflict is None and room.published.head() == room.published.ref(CHECKOUT):
            return None
        try:
            target = box or self._memory_box()
            answer = await room.bring_along(target)
            if answer is not None and answer.word is CheckoutWord.MOVED:
                # The agent committed meanwhile: what it made comes first.
                await room.import_from(target)
                answer = await room.bring_along(target)
            if conflict is not None and not conflict.rewritten:
                await room.show_theirs(target, conflict.remote)
            return answer
        except BOX_FAULTS as fault:
            return CheckoutAnswer(CheckoutWord.BUSY, f"no box: {fault}")

    async def _afterwards(self) -> None:
        failures = self.room.state.failures
        if failures and self._remote is not None:
            await self._clock.sleep(again_wait_s(failures, self._rng.random()))
            self.request(None, fetch=not self.heard)
            return
        await self._clock.sleep(_KEPT_GITS_IDLE_S)
        await self.room.local(self.room.published.close)


def _ahead(published: Published) -> int:
    return published.ahead_of(published.ref(REMOTE), published.head())
