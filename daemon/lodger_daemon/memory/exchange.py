"""One exchange with the remote: push first, fetch when refused or told, take in, push again."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import assert_never

from lodger_daemon.clock import Clock
from lodger_daemon.identity import AgentId
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
from lodger_daemon.memory.following import Conflicting, Followed, RemoteInvalid, Rewritten, follow
from lodger_daemon.memory.kept_gits import RefChange
from lodger_daemon.memory.published import FETCHED, REMOTE
from lodger_daemon.memory.remote import MemoryRemote
from lodger_daemon.memory.room import AgentRoom
from lodger_daemon.randomness import Rng


@dataclass(frozen=True, slots=True)
class Exchanged:
    """How it ended; `conflict` only with that outcome."""

    outcome: SyncOutcome
    detail: str = ""
    conflict: Conflict | None = None


class Exchange:
    """One agent's exchange; never two at a time for one agent."""

    def __init__(self, room: AgentRoom, agent_id: AgentId, remote: MemoryRemote, clock: Clock, rng: Rng) -> None:
        self._room = room
        self._url = remote.url(agent_id)
        self._remote = remote
        self._clock = clock
        self._rng = rng

    async def run(self, fetch_first: bool) -> Exchanged:
        """Raises: MemoryFailure for a fault of our own repository; a remote's faults are outcomes."""
        published = self._room.published
        fetch, pushed = fetch_first, False
        for attempt in range(1, PUSH_TRIES + 1):
            main, seen = published.head(), published.ref(REMOTE)
            if main is None:
                return Exchanged(SyncOutcome.SKIPPED, "there is no memory yet")
            if main != seen:
                answer, text = await self._try(lambda commit=main: self._push(commit))  # type: ignore[misc]
                match answer:
                    case RemoteAnswer.DONE:
                        await self._room.local(self._saw, main)
                        pushed = True
                    case RemoteAnswer.BEHIND:
                        fetch = True
                    case RemoteAnswer.EMPTY | RemoteAnswer.TROUBLE | RemoteAnswer.REFUSED:
                        return Exchanged(SyncOutcome.PUSH_FAILED, text)
                    case _:
                        assert_never(answer)
            if not fetch:
                return Exchanged(SyncOutcome.PUSHED if pushed else SyncOutcome.CLEAN)
            fault = await self._fetch_and_follow()
            if fault is not None:
                return fault
            fetch = False
            if published.head() == published.ref(REMOTE):
                return Exchanged(SyncOutcome.PUSHED if pushed else SyncOutcome.CLEAN)
            await self._clock.sleep(race_wait_s(attempt, self._rng.random()))
        return Exchanged(SyncOutcome.PUSH_FAILED, f"{PUSH_TRIES} tries were all overtaken by other machines")

    async def _fetch_and_follow(self) -> Exchanged | None:
        """None when what the remote has is part of main now."""
        answer, text = await self._try(self._fetch)
        match answer:
            case RemoteAnswer.DONE:
                pass
            case RemoteAnswer.EMPTY:
                # It has lost what it had: forget that, so that the next round pushes.
                await self._room.local(self._saw, None)
                return None
            case RemoteAnswer.BEHIND | RemoteAnswer.TROUBLE | RemoteAnswer.REFUSED:
                return Exchanged(SyncOutcome.PUSH_FAILED, text)
            case _:
                assert_never(answer)
        try:
            result = await self._room.local(self._follow)
        except RefMoved:
            # An import was faster; the next round sees its main.
            return None
        match result:
            case Followed():
                return None
            case Conflicting():
                detail = f"conflict in {', '.join(result.paths[:12])}"
                return Exchanged(SyncOutcome.CONFLICT, detail, Conflict(result.local, result.remote, result.paths))
            case Rewritten():
                detail = "the remote's history was replaced; both sides are kept on refs/lodger/rescue"
                conflict = Conflict(result.local, result.remote, (), rewritten=True)
                return Exchanged(SyncOutcome.CONFLICT, detail, conflict)
            case RemoteInvalid():
                return Exchanged(
                    SyncOutcome.INVALID, "what the remote has is not valid: " + "; ".join(result.findings[:5])
                )
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
        return await self._room.network(
            lambda: self._room.published.push(self._url, self._remote.environment(), commit)
        )

    async def _fetch(self) -> tuple[int | None, str]:
        return await self._room.network(lambda: self._room.published.fetch(self._url, self._remote.environment()))

    def _saw(self, commit: str | None) -> None:
        published = self._room.published
        published.change_refs(RefChange(REMOTE, commit, published.ref(REMOTE)))

    def _follow(self) -> Followed | Conflicting | Rewritten | RemoteInvalid:
        fetched = self._room.published.ref(FETCHED)
        if fetched is None:
            return Followed(False)
        return follow(self._room.published, fetched, self._room.now_s())


def joined_state(before: SyncState, done: Exchanged, ahead: int, at_s: float) -> SyncState:
    """The state after an exchange. A conflict found at import stays: only an import can end it."""
    conflict = done.conflict
    if conflict is None and before.conflict is not None and before.conflict.at_import:
        conflict = before.conflict
    failures = before.failures + 1 if done.outcome is SyncOutcome.PUSH_FAILED else 0
    return replace(
        before, outcome=done.outcome, detail=done.detail, conflict=conflict, failures=failures, ahead=ahead, at_s=at_s
    )
