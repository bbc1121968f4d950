"""The phases around one model step: prepare, stream, wait for another try, compact."""

from dataclasses import replace

from lodger_daemon.identity import RunId
from lodger_daemon.models.contract import FailureKind, FinishReason
from lodger_daemon.turns.core.actions import (
    Action,
    CompactNow,
    DropRun,
    PrepareStep,
    Publish,
    RecordStep,
    RunStep,
    Wait,
)
from lodger_daemon.turns.core.events import LoopFailed, LoopStatus, RetryAnnounced, RunFailed, RunStopped, RunVoided
from lodger_daemon.turns.core.machine_events import Compacted, Prepared, StepAdmitted, StepCompleted, StepFailed
from lodger_daemon.turns.core.outcomes import DEVICE, Outcome, close, enter, loop
from lodger_daemon.turns.core.retry_policy import (
    EMPTY_ATTEMPTS,
    OVERFLOW_ATTEMPTS,
    Retry,
    retry_empty,
    retry_transient,
    stop_reason_of,
)
from lodger_daemon.turns.core.states import Active, Compacting, Preparing, Recording, RetryWait, Stepping, Tries
from lodger_daemon.turns.core.stop_reasons import StopReason
from lodger_daemon.turns.core.words import EMPTY_ANSWER, FILTERED, STILL_EMPTY, STILL_TOO_LONG


def prepared(state: Active, phase: Preparing, event: Prepared) -> Outcome:
    turn = replace(state.turn, run_id=event.run_id)
    # A folded-in input must not widen what the turn's own client may be asked, so only the first step sets it.
    if turn.steps == 0:
        max_steps = turn.max_steps if event.max_steps is None else min(event.max_steps, turn.max_steps)
        turn = replace(turn, can_ask=event.can_ask, ask_together=event.ask_together, max_steps=max_steps)
    stepping = replace(state, turn=turn)
    return enter(
        stepping,
        Stepping(event.run_id, phase.tries),
        loop(LoopStatus.WAITING_FOR_API_RESPONSE, run_shown(state)),
        RunStep(state.lease, event.run_id),
    )


def admitted(state: Active, phase: Stepping, event: StepAdmitted) -> Outcome:
    if event.run_id != phase.run_id:
        return state, ()
    return enter(state, replace(phase, admitted=True), *_opened(phase.run_id, first=state.turn.steps == 0))


def admitted_with_its_end(state: Active, phase: Recording, event: StepAdmitted) -> Outcome:
    """The step is counted already."""
    if event.run_id != phase.batch.run_id:
        return state, ()
    return state, _opened(event.run_id, first=state.turn.steps == 1)


def _opened(run_id: RunId, *, first: bool) -> tuple[Action, ...]:
    """Clients of the wire see an open stream first and then its run; later steps refresh the device too."""
    processing = loop(LoopStatus.PROCESSING_API_RESPONSE)
    opened = (processing,) if first else (processing, processing, DEVICE)
    return *opened, loop(LoopStatus.PROCESSING_API_RESPONSE, run_id)


def completed(state: Active, phase: Stepping, event: StepCompleted) -> Outcome:
    """Exactly one stop reason for every step (BEHAVIOUR.md B6)."""
    if event.run_id != phase.run_id:
        return state, ()
    if event.empty and event.finish in (FinishReason.STOP, FinishReason.UNKNOWN, FinishReason.TOOL_CALLS):
        return _empty(state, phase, event)
    stepped = replace(state, turn=replace(state.turn, steps=state.turn.steps + 1))
    if event.batch is not None:
        record = RecordStep(state.lease, phase.run_id, StopReason.REQUIRES_APPROVAL, event.batch)
        return enter(stepped, Recording(event.batch), record)
    match event.finish:
        case FinishReason.LENGTH:
            return close(stepped, StopReason.MAX_TOKENS_EXCEEDED, with_run=phase.run_id)
        case FinishReason.CONTENT_FILTER:
            return close(stepped, StopReason.ERROR, FILTERED, with_run=phase.run_id)
        case FinishReason.STOP | FinishReason.UNKNOWN | FinishReason.TOOL_CALLS:
            return close(stepped, StopReason.END_TURN, with_run=phase.run_id)


def failed(state: Active, phase: Stepping, event: StepFailed) -> Outcome:
    if event.run_id != phase.run_id:
        return state, ()
    tries = phase.tries
    if event.kind is FailureKind.CONTEXT_OVERFLOW and tries.overflow < OVERFLOW_ATTEMPTS:
        compacting = Compacting(replace(tries, overflow=tries.overflow + 1))
        drop = _drop(state, phase, StopReason.LLM_API_ERROR)
        return enter(state, compacting, *drop, loop(LoopStatus.RETRYING_API_REQUEST), CompactNow(state.lease))
    retry = retry_transient(event.kind, event.status, event.retry_after_s, tries.transient, event.jitter)
    if retry is not None:
        again = RetryWait(replace(tries, transient=retry.attempt))
        drop = _drop(state, phase, StopReason.LLM_API_ERROR)
        return enter(state, again, *drop, *_announce(state, phase, retry, event.message, event.kind.value))
    stop_reason = stop_reason_of(event.kind)
    shown = (
        Publish(LoopFailed(event.message, stop_reason, terminal=False, run_id=phase.run_id)),
        Publish(RunFailed(phase.run_id, event.message, event.kind.value, retryable=False)),
    )
    closing, actions = close(state, stop_reason, event.message, with_run=phase.run_id)
    return closing, (*shown, *actions)


def run_shown(state: Active) -> RunId | None:
    """Until a step's run is known, later steps are shown under the run before."""
    return state.turn.run_id if state.turn.steps > 0 else None


def waited(state: Active, phase: RetryWait) -> Outcome:
    return again(state, phase.tries, phase.remind_of_empty)


def compacted(state: Active, phase: Compacting, event: Compacted) -> Outcome:
    if not event.shrunk:
        return too_large(state, f"{STILL_TOO_LONG} {event.reason}".rstrip())
    return again(state, phase.tries, remind_of_empty=False)


def too_large(state: Active, reason: str) -> Outcome:
    """Nothing that could be sent would be answered."""
    shown = Publish(LoopFailed(reason, StopReason.CONTEXT_WINDOW_OVERFLOW, terminal=False))
    closing, actions = close(state, StopReason.CONTEXT_WINDOW_OVERFLOW, reason)
    return closing, (shown, *actions)


def next_step(state: Active) -> Outcome:
    """Ask the model again after tool results, with what may be folded in at this boundary."""
    prepare = PrepareStep(state.lease, state.turn, first=False, reserve=True)
    return enter(state, Preparing(), prepare)


def again(state: Active, tries: Tries, remind_of_empty: bool) -> Outcome:
    # What the failed try had reserved is still held by this lease, so nothing more is reserved.
    prepare = PrepareStep(state.lease, state.turn, first=False, reserve=False, remind_of_empty=remind_of_empty)
    return enter(state, Preparing(tries), loop(LoopStatus.SENDING_API_REQUEST, run_shown(state)), prepare)


def _empty(state: Active, phase: Stepping, event: StepCompleted) -> Outcome:
    retry = retry_empty(phase.tries.empty, event.jitter)
    if retry is None:
        shown = Publish(LoopFailed(STILL_EMPTY, StopReason.LLM_API_ERROR, terminal=False, run_id=phase.run_id))
        closing, actions = close(state, StopReason.LLM_API_ERROR, STILL_EMPTY, with_run=phase.run_id)
        return closing, (shown, *actions)
    again = RetryWait(replace(phase.tries, empty=retry.attempt), remind_of_empty=retry.attempt == EMPTY_ATTEMPTS)
    drop = _drop(state, phase, StopReason.LLM_API_ERROR)
    return enter(state, again, *drop, *_announce(state, phase, retry, EMPTY_ANSWER, "empty_response"))


def _drop(state: Active, phase: Stepping, stop_reason: StopReason) -> tuple[Action, ...]:
    dropped = DropRun(state.lease, phase.run_id, stop_reason)
    if not phase.admitted:
        # A run nobody has seen needs no stop of its own.
        return (dropped,)
    return dropped, Publish(RunStopped(phase.run_id, stop_reason)), Publish(RunVoided(phase.run_id))


def _announce(state: Active, phase: Stepping, retry: Retry, message: str, reason: str) -> tuple[Action, ...]:
    announced = RetryAnnounced(
        message, reason, retry.attempt, retry.max_attempts, round(retry.delay_s * 1000), phase.run_id
    )
    return (
        Publish(announced),
        loop(LoopStatus.RETRYING_API_REQUEST),
        DEVICE,
        Wait(state.lease, retry.delay_s),
    )
