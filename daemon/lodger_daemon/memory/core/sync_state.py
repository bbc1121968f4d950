"""What is known of an agent's sync, as it is stored and as the agent and the person are told."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Final

from lodger_daemon.memory.contract import SyncOutcome

MAX_STATE_BYTES: Final = 256 * 1024
MAX_SHOWN: Final = 12


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two commits that cannot be put together by machine. Both stay on refs in published."""

    local: str
    remote: str
    paths: tuple[str, ...]
    rewritten: bool = False
    """The remote no longer has what it had: it was rewritten, or shares no history."""
    at_import: bool = False
    """The local side is a commit of the checkout that could not be published."""
    settled: tuple[str, ...] = ()
    """Of the paths, those that the agent has written since."""


@dataclass(frozen=True, slots=True)
class SyncState:
    outcome: SyncOutcome = SyncOutcome.SKIPPED
    at_s: float | None = None
    detail: str = ""
    ahead: int = 0
    conflict: Conflict | None = None
    invalid: tuple[str, ...] = ()
    """Findings on commits of the checkout that were not published."""
    invalid_commit: str | None = None
    dirty: tuple[str, ...] = ()
    """Paths with changes that nobody committed, as of the last turn's end."""
    failures: int = 0
    """Failed syncs in a row."""
    since_s: float | None = None
    """When the first of the syncs that have all ended like this one did."""


def dated(before: SyncState, after: SyncState) -> SyncState:
    """`after`, with since when it has been so."""
    goes_on = before.outcome is after.outcome and before.since_s is not None
    return replace(after, since_s=before.since_s if goes_on else after.at_s)


def state_to_json(state: SyncState) -> str:
    return json.dumps(asdict(state), ensure_ascii=True)


def state_from_json(text: str) -> SyncState:
    """A state that cannot be read counts as none: the repositories themselves hold everything that matters."""
    try:
        stored = json.loads(text)
        conflict = stored.get("conflict")
        return SyncState(
            outcome=SyncOutcome(stored["outcome"]),
            at_s=stored["at_s"],
            detail=str(stored["detail"]),
            ahead=int(stored["ahead"]),
            conflict=None if conflict is None else _conflict(conflict),
            invalid=tuple(map(str, stored["invalid"])),
            invalid_commit=stored["invalid_commit"],
            dirty=tuple(map(str, stored["dirty"])),
            failures=int(stored["failures"]),
            since_s=stored.get("since_s"),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return SyncState()


def _conflict(stored: Mapping[str, object]) -> Conflict:
    paths, settled = stored["paths"], stored.get("settled", [])
    if not isinstance(paths, list) or not isinstance(settled, list):
        raise TypeError("paths must be a list")
    return Conflict(
        str(stored["local"]),
        str(stored["remote"]),
        tuple(map(str, paths)),
        bool(stored["rewritten"]),
        bool(stored["at_import"]),
        tuple(map(str, settled)),
    )


def reminders_for(state: SyncState, place: str, shared: str | None = None) -> tuple[str, ...]:
    """One text for each state that needs the agent; gone when the state is.

    Args:
        place: where the agent finds the checkout.
        shared: the name of a memory that it shares with others.
    """
    found = []
    subject = subject_of(shared)
    if state.conflict is not None:
        resolve = "lodger memory resolve" + ("" if shared is None else f" --shared {shared}")
        found.append(_conflict_text(state.conflict, place, subject, resolve))
    if state.invalid:
        found.append(
            f"{subject}: your last commits are not published, because:\n"
            + "\n".join(f"- {text}" for text in state.invalid[:MAX_SHOWN])
            + f"\nMend this in {place} and commit again."
        )
    if state.dirty:
        found.append(
            f"{subject}: {place} has changes that are not committed: {shown(state.dirty)}. Commit them to keep them."
        )
    if state.outcome is SyncOutcome.IN_THE_WAY:
        found.append(
            f"{subject}: {state.detail}. Move or commit these files in {place}; then the newer memory can come in."
        )
    if state.outcome is SyncOutcome.PUSH_FAILED:
        safe = f"{state.ahead} commits are safe on this machine but not yet elsewhere"
        found.append(
            f"{subject}: {safe if state.ahead else 'it could not be synced, and nothing is lost'}: {state.detail}"
        )
    return tuple(found)


def subject_of(shared: str | None) -> str:
    """Which memory a text is about."""
    return "Memory" if shared is None else f"Shared memory {shared}"


def shown(paths: tuple[str, ...]) -> str:
    more = len(paths) - MAX_SHOWN
    return ", ".join(paths[:MAX_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _conflict_text(conflict: Conflict, place: str, subject: str, resolve: str) -> str:
    if conflict.rewritten:
        return (
            f"{subject}: the remote's history was replaced by one that does not continue what it had. Nothing was"
            f" overwritten here: this machine's memory is {conflict.local[:12]}, the remote's"
            f" {conflict.remote[:12]}; both are kept. Tell the person: they decide with `{resolve}`."
        )
    if conflict.at_import:
        return (
            f"{subject}: your commits and newer ones from elsewhere change the same places:"
            f" {shown(conflict.paths)}. Both are kept. In {place}, the other side is the ref refs/lodger/theirs"
            f" ({conflict.remote[:12]}): run `git merge refs/lodger/theirs`, keep what is true of both, and commit."
        )
    left = tuple(path for path in conflict.paths if path not in conflict.settled)
    return (
        f"{subject}: this machine and another one changed the same places: {shown(left)}. Both are kept, and everything"
        f" else is synced. Your version stands in {place}; the other one is in refs/lodger/theirs"
        f" ({conflict.remote[:12]}), for example `git show refs/lodger/theirs:{left[0] if left else 'PATH'}`. Write"
        " what is true of both into these files and commit; to keep your version as it is, commit with --allow-empty."
    )
