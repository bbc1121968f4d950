"""The phases after a step that called tools: judge, ask, run."""

from collections.abc import Mapping
from dataclasses import replace
from typing import assert_never

from lodger_daemon.identity import QuestionId, ToolCallId
from lodger_daemon.turns.contract import Allow, Deny
from lodger_daemon.turns.core.actions import Action, AskPerson, JudgeCalls, Publish, RefuseCall, RunCall, SaveRules
from lodger_daemon.turns.core.calls import (
    Batch,
    Call,
    CallProgress,
    Done,
    MustAsk,
    Permitted,
    Refused,
    RefusedBy,
    Running,
    Undecided,
    ready_to_run,
    to_ask,
)
from lodger_daemon.turns.core.events import LoopStatus, ToolEnded, ToolReturned, ToolStarted
from lodger_daemon.turns.core.machine_events import AnswerGiven, CallEnded, CallsJudged, QuestionLapsed, StepRecorded
from lodger_daemon.turns.core.outcomes import DEVICE, Outcome, close, enter, loop
from lodger_daemon.turns.core.states import Active, Asking, Executing, Judging, SavingRule
from lodger_daemon.turns.core.step_phase import next_step
from lodger_daemon.turns.core.stop_reasons import StopReason
from lodger_daemon.turns.core.words import DENIED, NO_WAY_TO_ASK, NOBODY_ANSWERED, STEP_LIMIT


def question_id_of(tool_call_id: ToolCallId) -> QuestionId:
    return QuestionId(f"perm-{tool_call_id}")


def recorded(state: Active, batch: Batch, event: StepRecorded) -> Outcome:
    """Calls that ended meanwhile are shown as those are that run now."""
    ended = event.ended
    if not ended:
        return judge(
            state, batch.map(lambda call: _started(call) if call.tool_call_id in event.started else call.progress)
        )
    running = loop(LoopStatus.EXECUTING_CLIENT_SIDE_TOOL, batch.run_id, tuple(one.tool_call_id for one in ended))
    starts = (
        Publish(ToolStarted(batch.run_id, batch.message_id, call.tool_call_id, call.tool_name, call.arguments_json))
        for call in batch.calls
    )
    ends = (
        Publish(event)
        for one in ended
        for event in (
            ToolEnded(batch.run_id, batch.message_id, one.tool_call_id, one.status),
            ToolReturned(batch.run_id, one.result_id, one.tool_call_id, one.status, one.text),
        )
    )
    after, actions = _all_done(state)
    return after, (running, running, DEVICE, *starts, *ends, *actions)


def _started(call: Call) -> CallProgress:
    return Permitted(call.arguments) if call.arguments is not None else call.progress


def judge(state: Active, batch: Batch) -> Outcome:
    """Have the rules look at every call that is not settled."""
    undecided = tuple(call for call in batch.calls if isinstance(call.progress, Undecided | MustAsk))
    if not undecided:
        return go_on(state, batch)
    return enter(state, Judging(batch), JudgeCalls(state.lease, batch, undecided))


def judged(state: Active, phase: Judging, event: CallsJudged) -> Outcome:
    progress = {call_id: _answerable(state, new) for call_id, new in event.progress.items()}
    return go_on(state, _merge(phase.batch, progress))


def go_on(state: Active, batch: Batch) -> Outcome:
    """Ask what is to be asked next; when nothing is left, run what may run."""
    asking = to_ask(batch, state.turn.ask_together)
    if not asking:
        return _start_executing(state, batch)
    questions = (AskPerson(state.lease, state.turn, batch, call, question_id_of(call.tool_call_id)) for call in asking)
    return enter(state, Asking(batch), loop(LoopStatus.WAITING_ON_APPROVAL, state.turn.run_id), *questions)


def settled(state: Active, phase: Judging | Asking | SavingRule, event: AnswerGiven | QuestionLapsed) -> Outcome:
    """A question had its one effect. Its call may be judged again right now, or wait for a rule of another answer."""
    call = next((call for call in phase.batch.calls if question_id_of(call.tool_call_id) == event.question_id), None)
    if call is None or not isinstance(call.progress, Undecided | MustAsk):
        return state, ()
    batch = phase.batch.change(call.tool_call_id, _after(call, event))
    shown: tuple[Action, ...] = (DEVICE,)
    if isinstance(event, AnswerGiven):
        shown = (loop(LoopStatus.WAITING_ON_APPROVAL, state.turn.run_id), DEVICE)
        if isinstance(event.answer, Allow) and event.answer.suggestion_ids:
            saving = phase.saving + 1 if isinstance(phase, SavingRule) else 1
            save = SaveRules(state.lease, call, event.answer.suggestion_ids)
            return enter(state, SavingRule(batch, saving), *shown, save)
    if not isinstance(phase, Asking):
        return enter(state, replace(phase, batch=batch), *shown)
    if state.turn.ask_together and to_ask(batch, together=True):
        return enter(state, Asking(batch), *shown)
    after, actions = go_on(state, batch)
    return after, (*shown, *actions)


def rules_saved(state: Active, phase: SavingRule) -> Outcome:
    if phase.saving > 1:
        return enter(state, replace(phase, saving=phase.saving - 1))
    return judge(state, phase.batch)


def call_ended(state: Active, phase: Executing, event: CallEnded) -> Outcome:
    call = phase.batch.get(event.tool_call_id)
    if call is None or isinstance(call.progress, Done):
        return state, ()
    batch = phase.batch.change(event.tool_call_id, Done())
    return _run_ready(state, batch) if batch.unfinished else _all_done(state)


def ended_early(state: Active, phase: Judging | Asking | SavingRule, event: CallEnded) -> Outcome:
    batch = phase.batch.change(event.tool_call_id, Done())
    return replace(state, phase=replace(phase, batch=batch)), ()


def _all_done(state: Active) -> Outcome:
    if state.turn.steps >= state.turn.max_steps:
        return close(state, StopReason.MAX_STEPS, STEP_LIMIT.format(steps=state.turn.steps))
    return next_step(state)


def _answerable(state: Active, progress: CallProgress) -> CallProgress:
    if isinstance(progress, MustAsk) and not state.turn.can_ask:
        return Refused(NO_WAY_TO_ASK.format(reason=progress.reason), RefusedBy.NOBODY, progress.rule)
    return progress


def _merge(batch: Batch, progress: Mapping[ToolCallId, CallProgress]) -> Batch:
    """What a person decided while the rules were looked at stands."""
    return batch.map(
        lambda call: (
            progress.get(call.tool_call_id, call.progress)
            if isinstance(call.progress, Undecided | MustAsk)
            else call.progress
        )
    )


def _after(call: Call, event: AnswerGiven | QuestionLapsed) -> CallProgress:
    if isinstance(event, QuestionLapsed):
        return Refused(NOBODY_ANSWERED, RefusedBy.NOBODY)
    match event.answer:
        case Deny(message):
            return Refused(message or DENIED, RefusedBy.PERSON)
        case Allow(updated_input=changed):
            arguments = call.arguments if changed is None else changed
            assert arguments is not None
            return Permitted(arguments, by_person=True)
        case _:
            assert_never(event.answer)


def _start_executing(state: Active, batch: Batch) -> Outcome:
    if not batch.unfinished:
        return _all_done(state)
    refusals: list[Action] = [
        RefuseCall(state.lease, batch, call, call.progress.text)
        for call in batch.calls
        if isinstance(call.progress, Refused)
    ]
    after, actions = _run_ready(state, batch)
    shown, rest = actions[:1], actions[1:]
    return after, (*shown, *shown, DEVICE, *refusals, *rest)


def _run_ready(state: Active, batch: Batch) -> Outcome:
    """The first action announces what executes; nothing is announced when nothing new starts."""
    runs: list[Action] = []
    for call in ready_to_run(batch):
        assert isinstance(call.progress, Permitted)
        permitted = call.progress
        runs.append(RunCall(state.lease, batch, call, permitted.arguments, permitted.by_person))
        batch = batch.change(call.tool_call_id, Running(permitted.arguments))
    shown = loop(LoopStatus.EXECUTING_CLIENT_SIDE_TOOL, batch.run_id, batch.executing)
    return enter(state, Executing(batch), shown, *runs)
