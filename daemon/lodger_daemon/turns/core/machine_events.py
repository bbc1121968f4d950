"""What the turn machine is told. Every report of work carries the lease it was done under."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from lodger_daemon.identity import MessageId, QuestionId, RunId, ToolCallId, TurnId
from lodger_daemon.models.contract import FailureKind, FinishReason
from lodger_daemon.spend.contract import LimitReached
from lodger_daemon.turns.contract import Answer
from lodger_daemon.turns.core.calls import Batch, CallProgress
from lodger_daemon.turns.core.states import MAX_STEPS, Lease, Turn


@dataclass(frozen=True, slots=True)
class InputWaits:
    """The queue holds something. `direct` when the head just came in from an idle conversation's client."""

    lease: Lease
    turn_id: TurnId
    direct: bool
    max_steps: int = MAX_STEPS


@dataclass(frozen=True, slots=True)
class TurnRecovered:
    """A restart found this turn unfinished.

    `batch` are the calls of its last step, or None to ask the model again. A call marked as running was started by an
    earlier daemon; whoever tells this collects its outcome and reports its end.
    """

    lease: Lease
    turn: Turn
    batch: Batch | None


@dataclass(frozen=True, slots=True)
class CommandBegun:
    lease: Lease
    name: str


@dataclass(frozen=True, slots=True)
class CommandEnded:
    lease: Lease


@dataclass(frozen=True, slots=True)
class AbortAsked:
    pass


@dataclass(frozen=True, slots=True)
class Prepared:
    """Inputs are reserved and the request is built."""

    lease: Lease
    run_id: RunId
    can_ask: bool
    ask_together: bool = False
    max_steps: int | None = None
    """What the client wished; the machine's limit holds all the same."""


@dataclass(frozen=True, slots=True)
class TooLarge:
    """The request would leave its answer no room, also after compaction; the reason is for the person."""

    lease: Lease
    reason: str


@dataclass(frozen=True, slots=True)
class NothingWaits:
    """A turn was begun but its input is gone (removed from the queue meanwhile)."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class SpendStopped:
    """A limit of what may be spent stands in the way of this step."""

    lease: Lease
    run_id: RunId
    """The run that the transcript ends with, which is over."""
    limit: LimitReached
    can_ask: bool
    remind_of_empty: bool = False


@dataclass(frozen=True, slots=True)
class StepAdmitted:
    """The model has begun to answer; run, inputs and their admission are committed."""

    lease: Lease
    run_id: RunId


@dataclass(frozen=True, slots=True)
class StepCompleted:
    """The step ended in good order. `batch` holds its tool calls, None without any; `empty` when it said nothing."""

    lease: Lease
    run_id: RunId
    finish: FinishReason
    batch: Batch | None
    empty: bool
    jitter: float = 0.0


@dataclass(frozen=True, slots=True)
class StepFailed:
    lease: Lease
    run_id: RunId
    kind: FailureKind
    message: str
    status: int | None
    retry_after_s: float | None
    jitter: float
    """In [0, 1), from the room's source of chance."""


@dataclass(frozen=True, slots=True)
class EndedCall:
    """A call that ended as its step was written down, with what its result is in the transcript."""

    tool_call_id: ToolCallId
    result_id: MessageId
    status: Literal["success", "error"]
    text: str


@dataclass(frozen=True, slots=True)
class StepRecorded:
    lease: Lease
    run_id: RunId
    started: frozenset[ToolCallId] = frozenset()
    """Calls that the rules allowed and that are in the journal as started; judged once more as they run."""
    ended: tuple[EndedCall, ...] = ()
    """All calls of the step, or none."""


@dataclass(frozen=True, slots=True)
class WaitEnded:
    lease: Lease


@dataclass(frozen=True, slots=True)
class Compacted:
    lease: Lease
    shrunk: bool
    reason: str = ""
    """Why it did not get shorter, in words for the person."""


@dataclass(frozen=True, slots=True)
class CallsJudged:
    """What the rules say of each undecided call."""

    lease: Lease
    progress: Mapping[ToolCallId, CallProgress]


@dataclass(frozen=True, slots=True)
class AnswerGiven:
    """A pending question was settled by this answer."""

    question_id: QuestionId
    answer: Answer


@dataclass(frozen=True, slots=True)
class QuestionLapsed:
    """Nobody answered in time."""

    question_id: QuestionId


@dataclass(frozen=True, slots=True)
class RulesSaved:
    lease: Lease


@dataclass(frozen=True, slots=True)
class CallEnded:
    """The result of this call is committed."""

    lease: Lease
    tool_call_id: ToolCallId


@dataclass(frozen=True, slots=True)
class WorkFailed:
    """Something of ours broke; the turn cannot go on."""

    lease: Lease
    message: str


@dataclass(frozen=True, slots=True)
class TurnClosed:
    """The end of the turn is committed."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class Unwound:
    """An aborted turn's work has stopped and its end is committed."""

    lease: Lease


LeasedEvent: TypeAlias = (
    CommandEnded
    | Prepared
    | TooLarge
    | SpendStopped
    | NothingWaits
    | StepAdmitted
    | StepCompleted
    | StepFailed
    | StepRecorded
    | WaitEnded
    | Compacted
    | CallsJudged
    | RulesSaved
    | CallEnded
    | WorkFailed
    | TurnClosed
    | Unwound
)

MachineEvent: TypeAlias = (
    InputWaits | TurnRecovered | CommandBegun | AbortAsked | AnswerGiven | QuestionLapsed | LeasedEvent
)
