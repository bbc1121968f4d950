"""Background writers of an agent's memory: what is on record of one, and how one state leads to another."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NewType

from lodger_daemon.clock import WallTime
from lodger_daemon.identity import AgentId

WriterId = NewType("WriterId", str)
"""`<kind>-<time>-<8 hex>`; also names its folder and its refs, so it is made here and never comes from outside."""

FIRST_WAIT_S: Final = 15 * 60.0
LONGEST_WAIT_S: Final = 24 * 3600.0
"""After failures in a row, by doubling. The reference tries again at once and for ever (BEHAVIOUR.md F10)."""


class WriterKind(StrEnum):
    """At most one of a kind is open for each agent."""

    REFLECTION = "reflection"
    """Reads what was said and writes down what is worth keeping."""
    REPAIR = "repair"
    """Mends what is in conflict or not valid; it alone may decide a conflict."""


class WriterState(StrEnum):
    CREATED = "created"
    """On record; its tree may be half-made."""
    RUNNING = "running"
    FINISHED = "finished"
    """It said that its work is done; what it committed still lies in its tree only."""
    MERGING = "merging"
    """Its commits are valid and on a ref of their own; they may be on main already."""
    MERGED = "merged"
    UNCHANGED = "unchanged"
    """It ended well, with a report and nothing to write down."""
    CONFLICTED = "conflicted"
    """Its commits stay on their ref, since main says something else in the same places."""
    RESCUED = "rescued"
    """It did not end well; what it had written is kept, on its ref or in its tree."""
    ABANDONED = "abandoned"
    """It left nothing, or a person has dropped it."""


OPEN: Final = frozenset({WriterState.CREATED, WriterState.RUNNING, WriterState.FINISHED, WriterState.MERGING})
KEPT: Final = frozenset({WriterState.CONFLICTED, WriterState.RESCUED})
"""Ended, but what it wrote may still be merged."""
CONSUMING: Final = frozenset({WriterState.MERGED, WriterState.UNCHANGED})
"""Only these count the transcript as read: what was read and lost is read again."""


@dataclass(frozen=True, slots=True)
class TranscriptPart:
    """Messages of an agent by their numbers: those above `after`, up to `through`."""

    after: int
    through: int


@dataclass(frozen=True, slots=True)
class Writer:
    """One background writer, as it is on record."""

    id: WriterId
    agent_id: AgentId
    kind: WriterKind
    state: WriterState
    created_at: WallTime
    reads: TranscriptPart | None = None
    base: str | None = None
    """The published commit that its tree began with."""
    tip: str | None = None
    """Its last commit, in published on a ref of its own."""
    head: str | None = None
    """Main once it was merged."""
    paths: tuple[str, ...] = ()
    """Where it and main say something else."""
    reason: str = ""
    """How it came to this state, for people."""
    report: str = ""
    """What the writer said at its end."""
    ended_at: WallTime | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """How one writer ended, for the decision when the next of its kind may begin."""

    state: WriterState
    at: WallTime


def may_begin_at(latest_first: tuple[Ending, ...]) -> WallTime | None:
    """From when on another one of the kind may begin by itself; None for at once.

    Args:
        latest_first: endings of this agent's writers of the kind, by when they began: what is kept of an old one may
            be tried again and fail again, which says nothing of the next.
    """
    failures = 0
    for ending in latest_first:
        if ending.state in CONSUMING:
            break
        failures += 1
    if not failures:
        return None
    # Past some thirty doublings the wait has long been the longest.
    wait_s = min(FIRST_WAIT_S * 2 ** min(failures - 1, 30), LONGEST_WAIT_S)
    return WallTime(latest_first[0].at + wait_s)
