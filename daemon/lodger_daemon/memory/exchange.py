"""One exchange with the remote: push first, fetch when refused or told, take in, push again."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final, assert_never

from lodger_daemon.clock import Clock
from lodger_daemon.identity import AgentId
from lodger_daemon.memory.checkout import CheckoutAnswer, CheckoutWord
from lodger_daemon.memory.contract import SyncOutcome
from lodger_daemon.memory.core.remote_answers import (
    PUSH_TRIES,
    TROUBLE_TRIES,
    RemoteAnswer,
    judge,
    race_wait_s,
    trouble_wait_s,
)
from lodger_daemon.memory.core.sync_state import Conflict, SyncState
from lodger_daemon.memory.errors import RefMoved
from lodger_daemon.memory.following import Conflicting, Followed, FollowResult, RemoteInvalid, Rewritten, follow
from lodger_daemon.memory.holding import HELD, arrange
from lodger_daemon.memory.kept_gits import RefChange
from lodger_daemon.memory.published import FETCHED, REMOTE
from lodger_daemon.memory.pushing import push
from lodger_daemon.memory.remote import Remote
from lodger_daemon.memory.room import AgentRoom
from lodger_daemon.randomness import Rng

QUIET: Final = frozenset({SyncOutcome.SKIPPED, SyncOutcome.CLEAN, SyncOutcome.PUSHED})
"""The remote and this machine agree, or there is no remote."""


@dataclass(frozen=True, slots=True)
class Exchanged:
    """How it ended, and the conflict that is left."""

    outcome: SyncOutcome
    detail: str = ""
    conflict: Conflict | None = None


class Exchange:
    """One agent's exchange; never two at a time for one agent."""

    def __init__(self, room: AgentRoom, agent_id: AgentId, remote: Remote, clock: Clock, rng: Rng) -> None:
        self._room = room
        self._url = remote.url(agent_id)
        self._remote = remote
        self._clock = clock
        self._rng = rng
        known = room.state.conflict
        self._conflict = None if known is None or known.at_import or known.rewritten else known

    async def run(self, fetch_first: bool) -> Exchanged:
        """Raises: MemoryFailure for a fault of our own repository; a remote's faults are outcomes."""
        published = self._room.published
        fetch, pushed = fetch_first, False
        for attempt in range(1, PUSH_TRIES + 1):
            try:
                pushable = await self._room.local(self._arrange)
            except RefMoved:
                continue
            if pushable is None:
                return Exchanged(SyncOutcome.SKIPPED, "there is no memory yet")
            if pushable != published.ref(REMOTE):
                answer, text = await self._try(lambda commit=pushable: self._push(commit))  # type: ignore[misc]
                match answer:
                    case RemoteAnswer.DONE:
                        await self._room.local(self._saw, pushable)
                        pushed = True
                    case RemoteAnswer.BEHIND:
                        fetch = True
                    case RemoteAnswer.EMPTY | RemoteAnswer.TROUBLE | RemoteAnswer.REFUSED:
                        return Exchanged(SyncOutcome.PUSH_FAILED, text, self._conflict)
                    case _:
                        assert_never(answer)
            if not fetch:
                return self._level(pushed)
            fault = await self._fetch_and_follow()
            if fault is not None:
                return fault
            fetch = False
            if published.head() == published.ref(REMOTE):
                return self._level(pushed)
            await self._clock.sleep(race_wait_s(attempt, self._rng.random()))
        text = f"{PUSH_TRIES} tries were all overtaken by other machines"
        return Exchanged(SyncOutcome.PUSH_FAILED, text, self._conflict)

    def _level(self, pushed: bool) -> Exchanged:
        """Both sides have what they can have of each other."""
        if self._conflict is not None:
            detail = f"conflict in {', '.join(self._conflict.paths[:12])}; everything else is synced"
            return Exchanged(SyncOutcome.CONFLICT, detail, self._conflict)
        return Exchanged(SyncOutcome.PUSHED if pushed else SyncOutcome.CLEAN)

    def _arrange(self) -> str | None:
        """What may be pushed now; notes what is left of a conflict."""
        known = self._conflict
        paths, settled = ((), ()) if known is None else (known.paths, known.settled)
        arranged = arrange(self._room.published, paths, settled, self._room.now_s())
        if arranged is None:
            return None
        if not arranged.paths:
            self._conflict = None
        elif known is None:
            head, base = self._room.published.head() or "", arranged.pushable
            self._conflict = Conflict(head, base, arranged.paths, settled=arranged.settled)
        else:
            self._conflict = replace(known, paths=arranged.paths, settled=arranged.settled)
        return arranged.pushable

    async def _fetch_and_follow(self) -> Exchanged | None:
        """None when what the remote has is part of main now, as far as it fits."""
        answer, text = await self._try(self._fetch)
        match answer:
            case RemoteAnswer.DONE:
                pass
            case RemoteAnswer.EMPTY:
                # It has lost what it had: forget that, so that the next round pushes.
                await self._room.local(self._saw, None)
                return None
            case RemoteAnswer.BEHIND | RemoteAnswer.TROUBLE | RemoteAnswer.REFUSED:
                return Exchanged(SyncOutcome.PUSH_FAILED, text, self._conflict)
            case _:
                assert_never(answer)
        try:
            result = await self._room.local(self._follow)
        except RefMoved:
            # An import was faster; the next round sees its main.
            return None
        return self._followed(result)

    def _followed(self, result: FollowResult) -> Exchanged | None:
        match result:
            case Followed():
                if self._room.published.ref(HELD) is None:
                    self._conflict = None
                return None
            case Conflicting():
                known = self._conflict
                if result.fresh or known is None:
                    self._conflict = Conflict(result.local, result.remote, result.paths)
                else:
                    self._conflict = replace(known, paths=result.paths)
                if result.parted:
                    return None
                detail = f"conflict in {', '.join(result.paths[:12])}"
                return Exchanged(SyncOutcome.CONFLICT, detail, self._conflict)
            case Rewritten():
                detail = "the remote's history was replaced; both sides are kept; `lodger memory resolve` decides"
                conflict = Conflict(result.local, result.remote, (), rewritten=True)
                return Exchanged(SyncOutcome.CONFLICT, detail, conflict)
            case RemoteInvalid():
                text = "what the remote has is not valid: " + "; ".join(result.findings[:5])
                return Exchanged(SyncOutcome.INVALID, text, self._conflict)
            case _:
                assert_never(result)

    async def _try(self, command: Callable[[], Awaitable[tuple[int | None, str]]]) -> tuple[RemoteAnswer, str]:
        """Again after trouble, a few times; the answer and a clean text."""
        for attempt in range(1, TROUBLE_TRIES + 1):
            exit_code, text = await command()
            answer = judge(exit_code, text)
            if answer is not RemoteAnswer.TROUBLE or exit_code is None or attempt == TROUBLE_TRIES:
                break
            await self._clock.sleep(trouble_wait_s(attempt, self._rng.random()))
        return answer, self._remote.cleaned(text) or "the remote took too long"

    async def _push(self, commit: str) -> tuple[int | None, str]:
        known = self._room.published.ref(REMOTE)
        return await push(self._room, self._remote, self._url, commit, known, self._took)

    async def _took(self, commit: str) -> None:
        await self._room.local(self._saw, commit)

    async def _fetch(self) -> tuple[int | None, str]:
        return await self._room.network(lambda: self._room.published.fetch(self._url, self._remote.environment()))

    def _saw(self, commit: str | None) -> None:
        published = self._room.published
        published.change_refs(RefChange(REMOTE, commit, published.ref(REMOTE)))

    def _follow(self) -> FollowResult:
        fetched = self._room.published.ref(FETCHED)
        if fetched is None:
            return Followed(False)
        known = () if self._conflict is None else self._conflict.paths
        return follow(self._room.published, fetched, known, self._room.now_s())


def joined_state(before: SyncState, done: Exchanged, ahead: int, at_s: float) -> SyncState:
    """The state after an exchange. A conflict found at import stays: only an import can end it."""
    conflict = done.conflict
    if conflict is None and before.conflict is not None and before.conflict.at_import:
        conflict = before.conflict
    failures = before.failures + 1 if done.outcome is SyncOutcome.PUSH_FAILED else 0
    return replace(
        before, outcome=done.outcome, detail=done.detail, conflict=conflict, failures=failures, ahead=ahead, at_s=at_s
    )


def with_checkout(state: SyncState, answer: CheckoutAnswer | None) -> SyncState:
    """What the checkout adds to an otherwise quiet outcome."""
    if state.outcome not in QUIET:
        return state
    if state.conflict is not None:
        return replace(
            state, outcome=SyncOutcome.CONFLICT, detail=f"conflict in {', '.join(state.conflict.paths[:12])}"
        )
    if state.invalid:
        return replace(state, outcome=SyncOutcome.INVALID, detail="; ".join(state.invalid[:5]))
    if answer is not None and answer.word is CheckoutWord.IN_THE_WAY:
        return replace(state, outcome=SyncOutcome.IN_THE_WAY, detail=f"in the way of newer memory: {answer.detail}")
    if answer is not None and answer.word is CheckoutWord.TOO_LARGE:
        return replace(state, outcome=SyncOutcome.INVALID, detail=answer.detail)
    if answer is not None and answer.word is not CheckoutWord.UPDATED and answer.word is not CheckoutWord.INSTALLED:
        return replace(state, outcome=SyncOutcome.BUSY, detail=f"the checkout waits: {answer.word} {answer.detail}")
    if state.dirty and state.outcome is not SyncOutcome.PUSHED:
        return replace(state, outcome=SyncOutcome.DIRTY, detail=f"not committed: {', '.join(state.dirty[:12])}")
    return state


def noting_import(state: SyncState, noted: SyncState) -> SyncState:
    """`state` with what the latest import has noted: one may have run since the state was made."""
    conflict = None if state.conflict is not None and state.conflict.at_import else state.conflict
    if noted.conflict is not None and noted.conflict.at_import:
        conflict = noted.conflict
    return replace(state, conflict=conflict, invalid=noted.invalid, invalid_commit=noted.invalid_commit)
