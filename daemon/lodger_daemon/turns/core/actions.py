"""What the turn machine wants done. The conductor performs actions in order and reports back by events."""

from dataclasses import dataclass
from typing import TypeAlias

from lodger_daemon.identity import QuestionId, RunId
from lodger_daemon.spend.contract import LimitReached
from lodger_daemon.turns.core.calls import Batch, Call
from lodger_daemon.turns.core.events import ConversationEvent
from lodger_daemon.turns.core.states import Lease, Turn
from lodger_daemon.turns.core.stop_reasons import StopReason
from lodger_tools.json_value import JsonObject


@dataclass(frozen=True, slots=True)
class Publish:
    event: ConversationEvent


@dataclass(frozen=True, slots=True)
class PrepareStep:
    """Reserve what waits (`first`: the turn's own input; else what may be folded in at a tool boundary), build the
    request. Answered by Prepared or NothingWaits."""

    lease: Lease
    turn: Turn
    first: bool
    reserve: bool
    remind_of_empty: bool = False


@dataclass(frozen=True, slots=True)
class RunStep:
    """Answered by StepAdmitted, then StepCompleted or StepFailed."""

    lease: Lease
    run_id: RunId


@dataclass(frozen=True, slots=True)
class RecordStep:
    """Commit the finished step. Answered by StepRecorded."""

    lease: Lease
    run_id: RunId
    stop_reason: StopReason
    batch: Batch


@dataclass(frozen=True, slots=True)
class DropRun:
    """End a run that failed; its text does not join the transcript."""

    lease: Lease
    run_id: RunId
    stop_reason: StopReason


@dataclass(frozen=True, slots=True)
class Wait:
    """Answered by WaitEnded."""

    lease: Lease
    delay_s: float


@dataclass(frozen=True, slots=True)
class CompactNow:
    """Answered by Compacted."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class JudgeCalls:
    """Answered by CallsJudged."""

    lease: Lease
    batch: Batch
    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class AskPerson:
    """Open a durable question; answered by AnswerGiven or QuestionLapsed."""

    lease: Lease
    turn: Turn
    batch: Batch
    call: Call
    question_id: QuestionId


@dataclass(frozen=True, slots=True)
class AskAboutSpend:
    """Open a durable question: go on or stop? Answered by AnswerGiven or QuestionLapsed."""

    lease: Lease
    question_id: QuestionId
    run_id: RunId
    limit: LimitReached


@dataclass(frozen=True, slots=True)
class SaveRules:
    """Answered by RulesSaved, also when saving failed."""

    lease: Lease
    call: Call
    suggestion_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RefuseCall:
    """Commit an error result without running anything. Answered by CallEnded."""

    lease: Lease
    batch: Batch
    call: Call
    text: str


@dataclass(frozen=True, slots=True)
class RunCall:
    """Judge once more, commit the start, run, commit the result. Answered by CallEnded."""

    lease: Lease
    batch: Batch
    call: Call
    arguments: JsonObject
    by_person: bool


@dataclass(frozen=True, slots=True)
class CloseTurn:
    """Commit the end of the turn, together with the step that ended it. Answered by TurnClosed."""

    lease: Lease
    turn: Turn
    stop_reason: StopReason
    error: str | None
    with_run: RunId | None
    """The step that has not been recorded yet and ends with the turn."""


@dataclass(frozen=True, slots=True)
class Unwind:
    """Stop everything this lease started, commit what was seen and error results for open calls, end the turn.
    Answered by Unwound."""

    lease: Lease
    turn: Turn
    batch: Batch | None
    stop_reason: StopReason
    error: str | None = None


@dataclass(frozen=True, slots=True)
class TurnIsOver:
    """Sync memory beside the next turn."""

    turn: Turn


@dataclass(frozen=True, slots=True)
class Pump:
    """The conversation is free: start the next queued input."""


Action: TypeAlias = (
    Publish
    | PrepareStep
    | RunStep
    | RecordStep
    | DropRun
    | Wait
    | CompactNow
    | JudgeCalls
    | AskPerson
    | AskAboutSpend
    | SaveRules
    | RefuseCall
    | RunCall
    | CloseTurn
    | Unwind
    | TurnIsOver
    | Pump
)
