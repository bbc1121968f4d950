"""The one turn machine: a conversation's state and an event in, the new state and what to do out.

Nothing here waits, writes or looks at a clock. An event under another lease than the current one changes nothing and
publishes nothing; a turn is closed once, by the lease that owns it.
"""

from typing import assert_never

from lodger_daemon.turns.core import call_phases, spend_phase, step_phase
from lodger_daemon.turns.core.actions import PrepareStep, Pump, TurnIsOver
from lodger_daemon.turns.core.events import LoopStatus
from lodger_daemon.turns.core.machine_events import (
    AbortAsked,
    AnswerGiven,
    CallEnded,
    CallsJudged,
    CommandBegun,
    CommandEnded,
    Compacted,
    InputWaits,
    LeasedEvent,
    MachineEvent,
    NothingWaits,
    Prepared,
    QuestionLapsed,
    RulesSaved,
    SpendStopped,
    StepAdmitted,
    StepCompleted,
    StepFailed,
    StepRecorded,
    TooLarge,
    TurnClosed,
    TurnRecovered,
    Unwound,
    WaitEnded,
    WorkFailed,
)
from lodger_daemon.turns.core.outcomes import DEVICE, Outcome, announce_end, break_off, end_unwritten, interrupt, loop
from lodger_daemon.turns.core.states import (
    Active,
    Asking,
    AskingAboutSpend,
    Cancelling,
    Command,
    Compacting,
    Executing,
    Finishing,
    Idle,
    Judging,
    Preparing,
    Recording,
    RetryWait,
    SavingRule,
    State,
    Stepping,
    Turn,
)


def advance(state: State, event: MachineEvent) -> Outcome:
    """One step of the machine."""
    match event:
        case InputWaits():
            return _begin(state, event)
        case TurnRecovered():
            return _recover(state, event)
        case CommandBegun():
            return _begin_command(state, event)
        case AbortAsked():
            return _abort(state)
        case AnswerGiven() | QuestionLapsed():
            return _settle_question(state, event)
        case _:
            return _report(state, event)


def _begin(state: State, event: InputWaits) -> Outcome:
    if not isinstance(state, Idle):
        return state, ()
    turn = Turn(event.turn_id, max_steps=event.max_steps)
    prepare = PrepareStep(event.lease, turn, first=True, reserve=True)
    shown = (loop(LoopStatus.SENDING_API_REQUEST), DEVICE) if event.direct else ()
    return Active(event.lease, turn, Preparing()), (*shown, prepare)


def _recover(state: State, event: TurnRecovered) -> Outcome:
    if not isinstance(state, Idle):
        return state, ()
    recovered = Active(event.lease, event.turn, Preparing())
    if event.batch is None:
        after, actions = step_phase.next_step(recovered)
    else:
        after, actions = call_phases.judge(recovered, event.batch)
    return after, (DEVICE, *actions)


def _begin_command(state: State, event: CommandBegun) -> Outcome:
    if not isinstance(state, Idle):
        return state, ()
    return Command(event.lease, event.name), (loop(LoopStatus.EXECUTING_COMMAND), DEVICE)


def _abort(state: State) -> Outcome:
    if not isinstance(state, Active) or isinstance(state.phase, Finishing):
        return state, ()
    return interrupt(state)


def _settle_question(state: State, event: AnswerGiven | QuestionLapsed) -> Outcome:
    """A late answer finds no such question and changes nothing."""
    match state:
        case Active(phase=(Judging() | Asking() | SavingRule()) as phase):
            return call_phases.settled(state, phase, event)
        case Active(phase=AskingAboutSpend() as phase):
            return spend_phase.settled(state, phase, event)
        case _:
            return state, ()


def _report(state: State, event: LeasedEvent) -> Outcome:
    if isinstance(state, Idle) or state.lease != event.lease:
        return state, ()
    match state:
        case Command():
            return _command_report(state, event)
        case Cancelling():
            return _unwinding_report(state, event)
        case Active():
            return _active_report(state, event)
        case _:
            assert_never(state)


def _command_report(state: Command, event: LeasedEvent) -> Outcome:
    if isinstance(event, CommandEnded | WorkFailed):
        return Idle(), (loop(LoopStatus.WAITING_ON_INPUT), DEVICE, Pump())
    return state, ()


def _unwinding_report(state: Cancelling, event: LeasedEvent) -> Outcome:
    match event:
        case Unwound():
            ended = announce_end(state, state.stop_reason, state.error)
            return Idle(), (*ended, TurnIsOver(state.turn), Pump())
        case WorkFailed(message=message):
            return Idle(), end_unwritten(state, message)
        case _:
            return state, ()


def _active_report(state: Active, event: LeasedEvent) -> Outcome:
    match state.phase, event:
        case Finishing(stop_reason, error), TurnClosed():
            ended = announce_end(state, stop_reason, error)
            return Idle(), (*ended, TurnIsOver(state.turn), Pump())
        case Finishing(), WorkFailed(message=message):
            return Idle(), end_unwritten(state, message)
        case _, WorkFailed(message=message):
            return break_off(state, message)
        case Preparing() as phase, Prepared():
            return step_phase.prepared(state, phase, event)
        case Preparing(), TooLarge(reason=reason):
            return step_phase.too_large(state, reason)
        case Preparing() as phase, SpendStopped():
            return spend_phase.stopped(state, phase, event)
        case Preparing(), NothingWaits():
            return Idle(), (loop(LoopStatus.WAITING_ON_INPUT), DEVICE, Pump())
        case Stepping() as phase, StepAdmitted():
            return step_phase.admitted(state, phase, event)
        case Stepping() as phase, StepCompleted():
            return step_phase.completed(state, phase, event)
        case Stepping() as phase, StepFailed():
            return step_phase.failed(state, phase, event)
        case RetryWait() as phase, WaitEnded():
            return step_phase.waited(state, phase)
        case Compacting() as phase, Compacted():
            return step_phase.compacted(state, phase, event)
        case Recording() as phase, StepAdmitted():
            return step_phase.admitted_with_its_end(state, phase, event)
        case Recording(batch), StepRecorded():
            return call_phases.recorded(state, batch, event)
        case Judging() as phase, CallsJudged():
            return call_phases.judged(state, phase, event)
        case SavingRule() as phase, RulesSaved():
            return call_phases.rules_saved(state, phase)
        case (Judging() | Asking() | SavingRule()) as phase, CallEnded():
            # After a restart, calls of an earlier daemon may still end while others wait for a verdict.
            return call_phases.ended_early(state, phase, event)
        case Executing() as phase, CallEnded():
            return call_phases.call_ended(state, phase, event)
        case _:
            return state, ()
