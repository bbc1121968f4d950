"""How the phases of the machine answer: the next state and what to do, and the ends they share."""

from dataclasses import replace
from typing import TypeAlias

from lodger_daemon.identity import RunId, ToolCallId
from lodger_daemon.turns.core.actions import Action, CloseTurn, Publish, Unwind
from lodger_daemon.turns.core.events import (
    DeviceStateChanged,
    LoopFailed,
    LoopStatus,
    LoopStatusChanged,
    StatusNote,
    TurnFinished,
)
from lodger_daemon.turns.core.states import (
    Active,
    Asking,
    AskingAboutSpend,
    Cancelling,
    Finishing,
    Phase,
    State,
    batch_of,
)
from lodger_daemon.turns.core.stop_reasons import StopReason
from lodger_daemon.turns.core.words import INTERRUPTED_NOTE

Outcome: TypeAlias = tuple[State, tuple[Action, ...]]

DEVICE = Publish(DeviceStateChanged())


def loop(status: LoopStatus, run_id: RunId | None = None, executing: tuple[ToolCallId, ...] = ()) -> Publish:
    return Publish(LoopStatusChanged(status, run_id, executing))


def enter(state: Active, phase: Phase, *actions: Action) -> Outcome:
    return replace(state, phase=phase), actions


def close(state: Active, stop_reason: StopReason, error: str | None = None, with_run: RunId | None = None) -> Outcome:
    """Write down the end of the turn; only after that is it announced."""
    action = CloseTurn(state.lease, state.turn, stop_reason, error, with_run)
    return enter(state, Finishing(stop_reason, error), action)


def announce_end(state: Active | Cancelling, stop_reason: StopReason, error: str | None) -> tuple[Action, ...]:
    """What clients see once the end is committed (PROTOCOL.md 6.1, 6.9)."""
    finished = Publish(TurnFinished(state.turn.turn_id, stop_reason, state.turn.run_id, error))
    idle = (loop(LoopStatus.WAITING_ON_INPUT), DEVICE)
    if isinstance(state, Cancelling) and stop_reason is StopReason.CANCELLED:
        return (finished, DEVICE)
    if error is None:
        return (*idle, finished, DEVICE)
    failed = Publish(LoopFailed(error, stop_reason, terminal=True, run_id=state.turn.run_id))
    return (*idle, finished, failed, DEVICE)


def end_unwritten(state: Active | Cancelling, message: str) -> tuple[Action, ...]:
    """The end could not be committed, so it is not announced: the next start finds the turn open and ends it."""
    failed = Publish(LoopFailed(message, StopReason.ERROR, terminal=True, run_id=state.turn.run_id))
    return (loop(LoopStatus.WAITING_ON_INPUT), DEVICE, failed)


def interrupt(state: Active) -> Outcome:
    """An abort in any phase but the last: the work unwinds, the person sees an idle conversation at once."""
    run_id = state.turn.run_id
    idle = (loop(LoopStatus.WAITING_ON_INPUT), DEVICE)
    # A question on screen is taken back by a status of its own.
    taken_back = idle if isinstance(state.phase, Asking | AskingAboutSpend) else ()
    shown = (
        *taken_back,
        *idle,
        Publish(StatusNote(INTERRUPTED_NOTE, "warning", run_id)),
    )
    cancelling, unwind = _unwind(state, StopReason.CANCELLED, None)
    return cancelling, (*shown, unwind)


def break_off(state: Active, message: str) -> Outcome:
    """Something of ours failed: as an abort, but it ends as an error."""
    shown = Publish(LoopFailed(message, StopReason.ERROR, terminal=False, run_id=state.turn.run_id))
    cancelling, unwind = _unwind(state, StopReason.ERROR, message)
    return cancelling, (shown, unwind)


def _unwind(state: Active, stop_reason: StopReason, error: str | None) -> tuple[Cancelling, Unwind]:
    unwind = Unwind(state.lease, state.turn, batch_of(state.phase), stop_reason, error)
    return Cancelling(state.lease, state.turn, stop_reason, error), unwind
