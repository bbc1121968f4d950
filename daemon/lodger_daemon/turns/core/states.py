"""Who owns a conversation now, and how far its turn has come (BEHAVIOUR.md A9)."""

from dataclasses import dataclass
from typing import Final, NewType, TypeAlias, assert_never

from lodger_daemon.identity import QuestionId, RunId, TurnId
from lodger_daemon.spend.contract import LimitReached
from lodger_daemon.turns.core.calls import Batch
from lodger_daemon.turns.core.events import BlockedBy
from lodger_daemon.turns.core.stop_reasons import StopReason

Lease = NewType("Lease", int)
"""Names one owner of a conversation. Grows with each; an event with another lease than the current one is stale."""


MAX_STEPS: Final = 200
"""A turn that has called tools this often is more likely in a loop than at work."""


@dataclass(frozen=True, slots=True)
class Turn:
    turn_id: TurnId
    can_ask: bool = True
    """False when the input came from a client that cannot show questions."""
    steps: int = 0
    """Model steps completed so far."""
    run_id: RunId | None = None
    """The latest run."""
    max_steps: int = MAX_STEPS
    ask_together: bool = False
    """All questions of a step are open at once, because its client can show them so; else one after another."""


@dataclass(frozen=True, slots=True)
class Tries:
    """What this step has already been through; a new step starts from zero."""

    transient: int = 0
    empty: int = 0
    overflow: int = 0


@dataclass(frozen=True, slots=True)
class Preparing:
    """Inputs are being reserved and the request is being built."""

    tries: Tries = Tries()


@dataclass(frozen=True, slots=True)
class Stepping:
    """The request is out. `admitted` once the model has begun to answer and the inputs are in the transcript."""

    run_id: RunId
    tries: Tries
    admitted: bool = False


@dataclass(frozen=True, slots=True)
class RetryWait:
    tries: Tries
    remind_of_empty: bool = False


@dataclass(frozen=True, slots=True)
class Compacting:
    tries: Tries


@dataclass(frozen=True, slots=True)
class Recording:
    """A finished step that called tools is being written down; nothing runs before that."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class Judging:
    batch: Batch


@dataclass(frozen=True, slots=True)
class Asking:
    """Questions are open about calls that must be asked for: about the first of them, or about all of them."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class AskingAboutSpend:
    """A limit is reached before a step; the person is asked whether to go on."""

    question_id: QuestionId
    limit: LimitReached
    tries: Tries = Tries()
    remind_of_empty: bool = False


@dataclass(frozen=True, slots=True)
class SavingRule:
    """Other questions of the batch may be open meanwhile, and be answered."""

    batch: Batch
    saving: int = 1
    """How many answers wait for their rules."""


@dataclass(frozen=True, slots=True)
class Executing:
    batch: Batch


@dataclass(frozen=True, slots=True)
class Finishing:
    """The end of the turn is being written down. It can no longer be aborted."""

    stop_reason: StopReason
    error: str | None = None


Phase: TypeAlias = (
    Preparing
    | Stepping
    | RetryWait
    | Compacting
    | Recording
    | Judging
    | Asking
    | AskingAboutSpend
    | SavingRule
    | Executing
    | Finishing
)


@dataclass(frozen=True, slots=True)
class Idle:
    """Nobody owns the conversation; the queue may start a turn."""


@dataclass(frozen=True, slots=True)
class Command:
    """A person's command (such as compaction) runs; the queue waits."""

    lease: Lease
    name: str


@dataclass(frozen=True, slots=True)
class Active:
    lease: Lease
    turn: Turn
    phase: Phase


@dataclass(frozen=True, slots=True)
class Cancelling:
    """Aborted or broken, but its work has not unwound yet; the queue waits for that."""

    lease: Lease
    turn: Turn
    stop_reason: StopReason = StopReason.CANCELLED
    error: str | None = None


State: TypeAlias = Idle | Command | Active | Cancelling


def batch_of(phase: Phase) -> Batch | None:
    match phase:
        case Recording() | Judging() | Asking() | SavingRule() | Executing():
            return phase.batch
        case _:
            return None


def blocked_by(state: State) -> BlockedBy | None:
    """Why the queue waits."""
    match state:
        case Idle():
            return None
        case Command():
            return BlockedBy.COMMAND
        case Cancelling():
            return BlockedBy.INTERRUPTION
        case Active(phase=Asking() | AskingAboutSpend()):
            return BlockedBy.QUESTION
        case Active(turn=turn, phase=Preparing(tries)) if turn.steps == 0 and tries == Tries():
            # The head of the queue is being taken just now.
            return None
        case Active():
            return BlockedBy.TURN
        case _:
            assert_never(state)
