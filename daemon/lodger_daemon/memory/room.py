"""One agent's memory on this machine: both repositories, the state of its sync, and what moves between them."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from lodger_daemon.clock import Clock
from lodger_daemon.durable_files import write_durably
from lodger_daemon.memory.checkout import TOO_LARGE_AT_ONCE, Checkout, CheckoutAnswer, CheckoutWord, NoPack
from lodger_daemon.memory.contract import CompiledMemory, ImportReport
from lodger_daemon.memory.core.sync_state import (
    MAX_STATE_BYTES,
    Conflict,
    SyncState,
    dated,
    state_from_json,
    state_to_json,
    subject_of,
)
from lodger_daemon.memory.core.wanted_paths import BadRequest
from lodger_daemon.memory.errors import GitFailed, MemoryFailure, RefMoved
from lodger_daemon.memory.housekeeping import drop_left_over, pack_if_needed, sweep_if_due
from lodger_daemon.memory.importing import (
    Diverged,
    Imported,
    ImportResult,
    NothingNew,
    NotValid,
    import_pack,
    words_for,
)
from lodger_daemon.memory.kept import drop_superseded
from lodger_daemon.memory.kept_gits import RefChange
from lodger_daemon.memory.packs import part_pack, parts_of, whole_pack
from lodger_daemon.memory.published import CHECKOUT, Published
from lodger_daemon.memory.reading import added_paths, compile_memory, fullness_of
from lodger_daemon.memory.settling import Decision, Settled, SettleResult, Whole, settle
from lodger_tools.box.contract import Boxes, BoxKey, BoxProfile

P = ParamSpec("P")
T = TypeVar("T")
_log = logging.getLogger(__name__)
_CHECKOUT_LIMIT_S: Final = 15.0
_RACES: Final = 5
_RESTORE_AGAIN_S: Final = 60.0
"""A checkout that cannot be mended is not tried again at each tool call."""
_PACK_AGAIN_S: Final = 3600.0
_CHANGED: Final = frozenset({CheckoutWord.MOVED, CheckoutWord.IN_THE_WAY})
"""Answers of a checkout that somebody has changed."""


@dataclass(frozen=True, slots=True)
class Threads:
    """Local work and network work do not wait for each other."""

    local: Executor
    network: Executor


class AgentRoom:
    """
    Args:
        shared: the name of a memory that the agent shares with others.
        set_aside: of a memory that the agent may only read, from which nothing is published here: moves the checkout
            away and makes an empty one in its place.
    """

    def __init__(
        self,
        published: Published,
        checkout: Checkout,
        boxes: Boxes,
        clock: Clock,
        threads: Threads,
        *,
        shared: str | None = None,
        set_aside: Callable[[], None] | None = None,
    ) -> None:
        self._subject = subject_of(shared)
        self._set_aside = set_aside
        self.published = published
        self.checkout = checkout
        self._boxes = boxes
        self._clock = clock
        self._threads = threads
        self._checkout_lock = asyncio.Lock()
        self._refused: tuple[str, str | None] | None = None
        """The checkout's and published heads whose import was refused last: not worth another try."""
        self._theirs: str | None = None
        """The other side of a conflict, once the checkout has it."""
        self._compiled: CompiledMemory | None = None
        self._too_large: dict[str, CheckoutAnswer] = {}
        """Why the latest published head that goes into no checkout does not, by that head: what can be sent of it is
        not sent again in vain."""
        self._no_restore_before = 0.0
        self._no_packing_before = 0.0
        self._weighed: str | None = None
        self.fullness = ""
        """What the agent is told of the size of its core files, as of the last look."""
        self.state = self._stored = self._load()

    async def local(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run on a worker thread, under the agent's lock. It ends even if the waiter is cancelled."""

        def under_lock() -> T:
            with self.published.lock():
                return work(*args, **kwargs)

        return await asyncio.get_running_loop().run_in_executor(self._threads.local, under_lock)

    async def network(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        call = partial(work, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._threads.network, call)

    def now_s(self) -> int:
        return int(self._clock.wall())

    async def save(self, state: SyncState) -> None:
        """Durable when it returns, unless the disk takes nothing: then with the next one that it takes.

        What has been done is told as it is even then; the repositories themselves hold everything that matters.
        """
        self.state = state = dated(self.state, state)
        if state == self._stored:
            return
        try:
            await asyncio.get_running_loop().run_in_executor(self._threads.local, self._store, state_to_json(state))
            self._stored = state
        except OSError as fault:
            _log.warning("how the sync of %s stands could not be stored: %s", self.published.folder.name, fault)

    async def compiled(self) -> CompiledMemory:
        head = self.published.head()
        if head is None:
            return CompiledMemory(None, "")
        if self._compiled is None or self._compiled.standing != head:
            self._compiled = await self.local(compile_memory, self.published, head, self.checkout.inside)
        await self.weigh()
        return self._compiled

    async def weigh(self) -> None:
        """Look how much of each prompt the core files take; once for each published commit."""
        head = self.published.head()
        if head is not None and head != self._weighed:
            self.fullness = await self.local(fullness_of, self.published, head)
            self._weighed = head

    async def import_from(self, box: BoxKey) -> ImportReport:
        """Publish what the checkout's main gained.

        Raises: BoxUnavailable, BoxLost, MemoryFailure.
        """
        try:
            async with asyncio.timeout(_CHECKOUT_LIMIT_S):
                await self._checkout_lock.acquire()
        except TimeoutError:
            return ImportReport(
                False, self.published.head(), f"{self._subject}: busy; your commit is published with the next one."
            )
        try:
            return await self._import(box)
        finally:
            self._checkout_lock.release()

    def knows(self, head: str) -> bool:
        """Whether a checkout whose main is there has nothing to import, and no fault that is over."""
        conflict = self.state.conflict
        rests = not self.state.invalid and not (conflict is not None and conflict.at_import)
        return rests and head == self.published.ref(CHECKOUT)

    async def bring_along(self, box: BoxKey) -> CheckoutAnswer | None:
        """Update the checkout to published main; None when it is there already.

        Raises: BoxUnavailable, BoxLost, MemoryFailure.
        """
        async with self._checkout_lock:
            main, seen = self.published.head(), self.published.ref(CHECKOUT)
            if main is None or main == seen:
                return None
            if main in self._too_large:
                return self._too_large[main]
            if seen is None:
                return await self._install(box, main)
            if self._set_aside is None and self.tool_call_runs():
                return CheckoutAnswer(CheckoutWord.BUSY, "a tool call runs")
            answer = await self._update(box, seen, main)
            if self._set_aside is not None and answer.word in _CHANGED:
                await self._put_back(box, main)
                return CheckoutAnswer(CheckoutWord.UPDATED)
            return answer

    async def keep_house(self, *, has_remote: bool) -> None:
        """Let go of what is kept for nothing, and pack the published repository when it has grown loose; for the time
        between turns, while nothing is fetched."""
        if self._clock.mono() < self._no_packing_before:
            return
        try:
            await self.local(drop_left_over, self.published, self.now_s())
            is_packed = await self.local(pack_if_needed, self.published)
            is_done = await self._sweep(has_remote) and is_packed
        except (MemoryFailure, OSError) as fault:
            _log.warning("the memory of %s was not packed: %s", self.published.folder.name, fault)
            is_done = False
        if not is_done:
            self._no_packing_before = self._clock.mono() + _PACK_AGAIN_S

    async def _sweep(self, has_remote: bool) -> bool:
        # No import may be under way that counts on what is dropped.
        async with self._checkout_lock:
            if self.state.conflict is not None:
                # It names commits, which the person and the agent may look at.
                return True
            self._theirs = None
            await self.local(drop_superseded, self.published, has_remote=has_remote)
            return await self.local(sweep_if_due, self.published, self.now_s())

    async def packs(self, include: Sequence[str], exclude: Sequence[str]) -> AsyncIterator[bytes]:
        """What a checkout with `exclude` needs to have `include`, in packs that a box takes. Raises: MemoryFailure."""
        whole = await self.local(whole_pack, self.published, include, exclude)
        if whole is not None:
            yield whole
            return
        for part in await self.local(parts_of, self.published, include, exclude):
            yield await self.local(part_pack, self.published, part)

    async def show_theirs(self, box: BoxKey, remote: str) -> None:
        """Give the checkout the other side of a conflict as `refs/lodger/theirs`, unless a tool call may be at work."""
        if not self.tool_call_runs():
            await self._name_theirs(box, remote)

    async def _name_theirs(self, box: BoxKey, remote: str) -> None:
        seen = self.published.ref(CHECKOUT)
        if self._theirs == remote or seen is None:
            return
        answer = await self.checkout.receive(box, self.packs((remote,), (seen,)), remote)
        if answer.word is CheckoutWord.RECEIVED:
            self._theirs = remote

    @property
    def may_write(self) -> bool:
        """Whether anything is published from here."""
        return self._set_aside is None

    async def settle(self, decision: Decision) -> SettleResult:
        """What a person decided about the conflict that is noted. Raises: BadRequest, MemoryFailure."""
        if not self.may_write and (decision.choices or decision.rest not in (Whole.THEIRS, None)):
            raise BadRequest("this memory is attached for reading: only the others' version can be taken")
        for _ in range(_RACES):
            conflict = self.state.conflict
            try:
                result = await self.local(settle, self.published, conflict, decision, self.now_s())
            except RefMoved:
                continue
            if isinstance(result, Settled) and conflict is not None and self.state.conflict == conflict:
                paths = (*result.left, *conflict.settled)
                left = Conflict(conflict.local, conflict.remote, paths, settled=conflict.settled)
                await self.save(replace(self.state, conflict=left if result.left else None))
            return result
        raise GitFailed("update-ref", None, "main kept moving")

    def tool_call_runs(self) -> bool:
        """Whether one may be at work in the checkout; background writers work elsewhere, and long."""
        agent = self.checkout.agent_id
        keys = [status.key for status in self._boxes.statuses() if status.running_calls > 0]
        return any(key.agent_id == agent and key.profile is not BoxProfile.MEMORY_WORKER for key in keys)

    async def _import(self, box: BoxKey) -> ImportReport:
        head = await self.checkout.head(box)
        main, seen = self.published.head(), self.published.ref(CHECKOUT)
        if not head:
            return await self._restore(box, main)
        if head == seen:
            if self.state.invalid or (self.state.conflict is not None and self.state.conflict.at_import):
                await self.save(_without_import_faults(self.state))
            return ImportReport(False, main)
        if self._set_aside is not None and not await self.local(self._is_published, head):
            return await self._put_back(box, main)
        if (head, main) == self._refused:
            return ImportReport(False, main)
        known = tuple(oid for oid in (seen, self._theirs) if oid is not None)
        pack = await self.checkout.pack(box, head, known)
        if pack is NoPack.TOO_LARGE:
            result: ImportResult = NotValid(head, (TOO_LARGE_AT_ONCE,))
            await self._note(result, head)
            return ImportReport(False, main, words_for(result, self.checkout.inside, self._subject))
        if pack is NoPack.UNREADABLE and known:
            # The checkout may have lost what it once had; everything is slower but always right.
            pack = await self.checkout.pack(box, head, ())
        if isinstance(pack, NoPack):
            return ImportReport(
                False, main, f"{self._subject}: the box's git could not read your new commit; run git fsck there."
            )
        result = await self._publish(pack, head)
        await self._note(result, head)
        if isinstance(result, Diverged):
            # The agent is told to merge it, and may do so with its next call.
            await self._name_theirs(box, result.onto)
        return ImportReport(
            isinstance(result, Imported), self.published.head(), words_for(result, self.checkout.inside, self._subject)
        )

    async def _publish(self, pack: bytes, head: str) -> ImportResult:
        for _ in range(_RACES):
            try:
                return await self.local(import_pack, self.published, pack, head, self.now_s())
            except RefMoved:
                continue
        raise GitFailed("update-ref", None, "main kept moving")

    async def _note(self, result: ImportResult, tip: str) -> None:
        state = _without_import_faults(self.state)
        self._refused = None
        match result:
            case Imported() | NothingNew():
                pass
            case NotValid():
                self._refused = (tip, self.published.head())
                found = tuple(str(finding) for finding in result.findings)
                state = replace(state, invalid=found, invalid_commit=tip)
            case Diverged():
                self._refused = (tip, self.published.head())
                state = replace(state, conflict=Conflict(result.tip, result.onto, result.paths, at_import=True))
        await self.save(state)

    async def _restore(self, box: BoxKey, main: str | None) -> ImportReport:
        if main is None or self._clock.mono() < self._no_restore_before:
            return ImportReport(False, main)
        if main in self._too_large:
            return ImportReport(False, main)
        answer = await self._install(box, main)
        if answer.word is not CheckoutWord.INSTALLED:
            self._no_restore_before = self._clock.mono() + _RESTORE_AGAIN_S
            return ImportReport(
                False, main, f"{self._subject}: there is no usable checkout ({answer.word} {answer.detail})."
            )
        return ImportReport(
            False, main, f"{self._subject}: the checkout {self.checkout.inside} was made again from published."
        )

    async def _put_back(self, box: BoxKey, main: str | None) -> ImportReport:
        """What stands in a checkout that nobody may change is dropped, and kept aside for the person."""
        assert self._set_aside is not None
        await self.local(self._set_aside)
        # Its box shows the folder that was moved away.
        await self._boxes.end(box)
        if main is not None:
            await self._install(box, main)
        text = f"{self._subject}: it is read-only for you; what had changed in its checkout was dropped."
        _log.warning("%s (%s)", text, self.published.folder)
        return ImportReport(False, main, text)

    async def _install(self, box: BoxKey, main: str) -> CheckoutAnswer:
        answer = await self.checkout.install(box, main, self.packs((main,), ()), self.published.identity)
        if answer.word is CheckoutWord.INSTALLED:
            await self.local(self._set_checkout, main)
        if answer.word is CheckoutWord.TOO_LARGE:
            self._too_large = {main: answer}
        return answer

    async def _update(self, box: BoxKey, seen: str, main: str) -> CheckoutAnswer:
        added = await self.local(added_paths, self.published, seen, main)
        answer = await self.checkout.receive(box, self.packs((main,), (seen,)))
        if answer.word is CheckoutWord.TOO_LARGE:
            self._too_large = {main: answer}
        if answer.word is CheckoutWord.RECEIVED:
            self.published.seam("before updating the checkout")
            answer = await self.checkout.update(box, seen, main, added)
            self.published.seam("after updating the checkout")
        if answer.word is CheckoutWord.UPDATED:
            await self.local(self._set_checkout, main)
        return answer

    def _is_published(self, commit: str) -> bool:
        main = self.published.head()
        return main is not None and self.published.has_commit(commit) and self.published.is_ancestor(commit, main)

    def _set_checkout(self, commit: str) -> None:
        self.published.change_refs(RefChange(CHECKOUT, commit, self.published.ref(CHECKOUT)))

    @property
    def _state_file(self) -> Path:
        return self.published.folder / "sync.json"

    def _load(self) -> SyncState:
        try:
            with self._state_file.open(encoding="utf-8") as stored:
                return state_from_json(stored.read(MAX_STATE_BYTES))
        except OSError:
            return SyncState()

    def _store(self, text: str) -> None:
        with self.published.lock():
            self.published.seam("before replacing the state of sync")
            write_durably(self._state_file, text)
            self.published.seam("after replacing the state of sync")


def _without_import_faults(state: SyncState) -> SyncState:
    conflict = None if state.conflict is not None and state.conflict.at_import else state.conflict
    return replace(state, invalid=(), invalid_commit=None, conflict=conflict)
