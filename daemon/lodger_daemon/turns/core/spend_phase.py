"""The phase in which a limit of what may be spent stands before a step: ask, then go on or end the turn."""

from dataclasses import replace
from typing import assert_never

from lodger_daemon.identity import QuestionId, RunId
from lodger_daemon.spend.contract import LimitReached
from lodger_daemon.turns.contract import Allow, Deny
from lodger_daemon.turns.core.actions import Action, AskAboutSpend, Publish
from lodger_daemon.turns.core.events import LoopFailed, LoopStatus
from lodger_daemon.turns.core.machine_events import AnswerGiven, QuestionLapsed, SpendStopped
from lodger_daemon.turns.core.outcomes import DEVICE, Outcome, close, enter, loop
from lodger_daemon.turns.core.states import Active, AskingAboutSpend, Preparing
from lodger_daemon.turns.core.step_phase import again
from lodger_daemon.turns.core.stop_reasons import StopReason
from lodger_daemon.turns.core.words import SPEND_NO_WAY_TO_ASK, SPEND_NOBODY_ANSWERED, SPEND_STOPPED


def question_id_of(run_id: RunId, limit: LimitReached) -> QuestionId:
    """One run may meet several limits, one after the other."""
    return QuestionId(f"spend-{run_id}-{limit.scope.value}-{limit.unit.value}")


def stopped(state: Active, phase: Preparing, event: SpendStopped) -> Outcome:
    turn = replace(state.turn, run_id=event.run_id)
    if turn.steps == 0:
        turn = replace(turn, can_ask=event.can_ask)
    here = replace(state, turn=turn)
    if not turn.can_ask:
        return _end(here, SPEND_NO_WAY_TO_ASK.format(words=event.limit.words))
    question_id = question_id_of(event.run_id, event.limit)
    return enter(
        here,
        AskingAboutSpend(question_id, event.limit, phase.tries, event.remind_of_empty),
        loop(LoopStatus.WAITING_ON_APPROVAL, event.run_id),
        AskAboutSpend(state.lease, question_id, event.run_id, event.limit),
    )


def settled(state: Active, phase: AskingAboutSpend, event: AnswerGiven | QuestionLapsed) -> Outcome:
    if event.question_id != phase.question_id:
        return state, ()
    if isinstance(event, QuestionLapsed):
        return _end(state, SPEND_NOBODY_ANSWERED.format(words=phase.limit.words), DEVICE)
    shown = (loop(LoopStatus.WAITING_ON_APPROVAL, state.turn.run_id), DEVICE)
    match event.answer:
        case Deny():
            return _end(state, SPEND_STOPPED.format(words=phase.limit.words), *shown)
        case Allow():
            # Asked anew before the step: another limit may stand behind this one.
            after, actions = again(state, phase.tries, phase.remind_of_empty)
            return after, (*shown, *actions)
        case _:
            assert_never(event.answer)


def _end(state: Active, words: str, *shown: Action) -> Outcome:
    failed = Publish(LoopFailed(words, StopReason.INSUFFICIENT_CREDITS, terminal=False, run_id=state.turn.run_id))
    closing, actions = close(state, StopReason.INSUFFICIENT_CREDITS, words)
    return closing, (*shown, failed, *actions)
