"""The work around tool calls: judge, ask, run, write down."""

import asyncio
import json
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from lodger_daemon.clock import WallTime
from lodger_daemon.identity import CallKey, RunId, ToolCallId
from lodger_daemon.questions.core.rules import QuestionStatus
from lodger_daemon.store import conversation_rows
from lodger_daemon.store.journal_rows import CallOutcome, OutcomeStatus
from lodger_daemon.store.question_rows import StoredQuestion
from lodger_daemon.turns import records
from lodger_daemon.turns.call_place import arguments_to_run, place_of_call
from lodger_daemon.turns.contract import Allow, Deny
from lodger_daemon.turns.core import actions as do
from lodger_daemon.turns.core import machine_events as told
from lodger_daemon.turns.core.calls import Batch, Call, CallProgress, MustAsk, Permitted, Refused
from lodger_daemon.turns.core.events import (
    DeviceStateChanged,
    FilePreview,
    LoopStatus,
    LoopStatusChanged,
    PermissionSuggestion,
    QuestionAsked,
    QuestionSettled,
    StatusNote,
    ToolEnded,
    ToolOutput,
    ToolReturned,
    ToolStarted,
)
from lodger_daemon.turns.core.words import DENIED, EFFECT_UNKNOWN, NOBODY_ANSWERED, PERMISSION_CHANGED, PERSON_SAID
from lodger_daemon.turns.desk import Desk, TurnWork
from lodger_daemon.turns.judging import as_progress
from lodger_daemon.turns.services import finish_regardless
from lodger_daemon.turns.step_work import is_external
from lodger_tools.json_value import JsonObject
from lodger_tools.permissions.core.verdicts import CallToJudge
from lodger_tools.toolbox_contract import EffectUnknown, Scheduling, ToolOutcome, ToolRequest

OUTPUT_LIMIT_CHARACTERS: Final = 30_000
"""Of a snapshot of running output; the peer's figure."""

OUTPUT_EVERY_S: Final = 0.1


async def judge_calls(desk: Desk, action: do.JudgeCalls) -> None:
    work = desk.work_of(action.lease)
    progress: dict[ToolCallId, CallProgress] = {}
    for call in action.calls:
        assert call.arguments is not None
        progress[call.tool_call_id] = judge_now(desk, work, call.tool_name, call.arguments)
    desk.feed(told.CallsJudged(action.lease, progress))


def call_to_judge(desk: Desk, work: TurnWork, tool_name: str, arguments: JsonObject) -> CallToJudge:
    return CallToJudge(
        tool_name=tool_name,
        arguments=arguments,
        cwd=work.place.cwd,
        workspace=work.place.box.workspace,
        memory_directory=desk.services.memory_directory(desk.key.agent_id),
    )


def judge_now(desk: Desk, work: TurnWork, tool_name: str, arguments: JsonObject) -> CallProgress:
    to_judge = call_to_judge(desk, work, tool_name, arguments)
    verdict = desk.services.judge.judge(to_judge, desk.live.mode(desk.services.options))
    return as_progress(verdict, to_judge)


async def ask_person(desk: Desk, action: do.AskPerson) -> None:
    """Store the question, then show it; after a restart the stored one is shown again."""
    work = desk.work_of(action.lease)
    call, book = action.call, desk.services.questions
    assert call.arguments is not None
    pending = {asked.question_id: asked for asked in book.pending(desk.key)}
    asked = pending.get(action.question_id)
    if asked is None or asked.run_id != action.batch.run_id:
        if pending:
            # Left over from an earlier daemon for a call that needed no answer any more.
            await withdraw_questions(desk)
        request = tool_request(desk, work, action.batch.run_id, call, call.arguments)
        previews = () if is_external(desk, call.tool_name) else await desk.services.toolbox.preview(request)
        question = _question(action, previews)
        asked = await finish_regardless(book.ask(desk.key, question, call.arguments))
    desk.work_of(action.lease)
    desk.question = asked
    desk.questions_changed()
    desk.publish(asked)
    desk.publish(LoopStatusChanged(LoopStatus.WAITING_ON_APPROVAL, action.batch.run_id))
    desk.publish(DeviceStateChanged())


async def withdraw_questions(desk: Desk) -> None:
    for settled in await finish_regardless(desk.services.questions.withdraw(desk.key)):
        desk.publish(QuestionSettled(settled.question.asked.question_id, "withdrawn"))


async def save_rules(desk: Desk, action: do.SaveRules) -> None:
    work = desk.work_of(action.lease)
    suggestions = action.call.progress.suggestions if isinstance(action.call.progress, MustAsk) else ()
    for suggestion in suggestions:
        if suggestion.id not in action.suggestion_ids:
            continue
        try:
            await desk.services.judge.save_rule(suggestion, work.place.box.workspace)
        except Exception as error:  # noqa: BLE001 - said just below
            # Whatever keeps a rule from being saved, the answer that came with it still holds.
            desk.publish(StatusNote(f"The rule could not be saved: {error}", "warning"))
    desk.work_of(action.lease)
    desk.feed(told.RulesSaved(action.lease))


async def refuse_call(desk: Desk, action: do.RefuseCall) -> None:
    work = desk.work_of(action.lease)
    outcome = ToolOutcome("error", action.text, refused=True)
    await _record_result(desk, work, action.batch, action.call, outcome, None)
    desk.feed(told.CallEnded(action.lease, action.call.tool_call_id))


async def run_call(desk: Desk, action: do.RunCall) -> None:
    """Judged once more, started on paper, run, finished on paper: in this order."""
    work = desk.work_of(action.lease)
    call = action.call
    key = CallKey(desk.key, action.batch.run_id, call.tool_call_id)
    refusal, approval = _check_again(desk, work, key, action)
    if refusal is not None:
        outcome = ToolOutcome("error", refusal, refused=True)
        await _record_result(desk, work, action.batch, call, outcome, None)
        desk.feed(told.CallEnded(action.lease, call.tool_call_id))
        return
    comment = _comment(desk, key) if action.by_person else ""
    await finish_regardless(_start(desk, work, key, call, action.arguments, approval))
    desk.work_of(action.lease)
    desk.publish(
        ToolStarted(
            action.batch.run_id,
            action.batch.message_id,
            call.tool_call_id,
            call.tool_name,
            _executed_json(call, action.arguments),
        )
    )
    request = tool_request(desk, work, action.batch.run_id, call, action.arguments)
    try:
        outcome = await _execute(desk, work, action.batch.run_id, call, request)
        status = OutcomeStatus(outcome.status)
    except EffectUnknown:
        if desk.stopping:
            # The box was let go of because the daemon stops; the next daemon collects the outcome from it.
            return
        outcome, status = ToolOutcome("error", EFFECT_UNKNOWN), OutcomeStatus.UNKNOWN
    outcome = _with_comment(outcome, comment)
    await _finish(desk, work, action.batch, call, outcome, status)
    desk.feed(told.CallEnded(action.lease, call.tool_call_id))


async def collect_call(desk: Desk, work: TurnWork, batch: Batch, call: Call, arguments: JsonObject) -> None:
    """Find out how a call of an earlier daemon ended. It is never run again."""
    work.started_calls.add(call.tool_call_id)
    comment = _comment(desk, CallKey(desk.key, batch.run_id, call.tool_call_id))
    outcome: ToolOutcome | None = None
    if not is_external(desk, call.tool_name):
        request = tool_request(desk, work, batch.run_id, call, arguments)
        work.used_box = True
        try:
            outcome = await desk.services.toolbox.collect(request)
        except EffectUnknown:
            outcome = None
    if desk.stopping:
        return
    if outcome is None:
        unknown = ToolOutcome("error", EFFECT_UNKNOWN)
        await _finish(desk, work, batch, call, unknown, OutcomeStatus.UNKNOWN)
    else:
        await _finish(desk, work, batch, call, _with_comment(outcome, comment), OutcomeStatus(outcome.status))
    desk.feed(told.CallEnded(work.lease, call.tool_call_id))


def progress_of_question(question: StoredQuestion) -> CallProgress | None:
    """What a question settled before a restart means for its call, which has not started."""
    settlement = question.settlement
    if settlement is None or settlement.status is QuestionStatus.WITHDRAWN:
        return None
    match settlement.answer:
        case Allow(updated_input=changed):
            return Permitted(question.arguments if changed is None else changed, by_person=True)
        case Deny(message):
            return Refused(message or DENIED)
        case None:
            return Refused(NOBODY_ANSWERED)


def tool_request(desk: Desk, work: TurnWork, run_id: RunId, call: Call, arguments: JsonObject) -> ToolRequest:
    key, home = desk.key, desk.services.options.home
    judged = call_to_judge(desk, work, call.tool_name, arguments)
    place = place_of_call(work.place, judged, home)
    return ToolRequest(
        call_key=str(CallKey(key, run_id, call.tool_call_id)),
        tool_name=call.tool_name,
        arguments=arguments_to_run(judged, home),
        box=place.box,
        cwd=place.cwd,
        environment={
            "AGENT_ID": key.agent_id,
            "CONVERSATION_ID": key.conversation_id,
            "MEMORY_DIR": desk.services.memory_directory(key.agent_id),
        },
    )


def end_on_paper(
    desk: Desk, batch: Batch, call: Call, status: OutcomeStatus, text: str, started: bool, now: WallTime
) -> records.CallResult:
    """The result of a call that will never end by itself."""
    message = records.result_message(desk.new_message_id(), batch.run_id, call.tool_call_id, "error", text, now)
    outcome = CallOutcome(status, text) if started else None
    return records.CallResult(CallKey(desk.key, batch.run_id, call.tool_call_id), message, outcome)


async def _start(desk: Desk, work: TurnWork, key: CallKey, call: Call, arguments: JsonObject, approval: str) -> None:
    now = desk.services.clock.wall()
    await desk.durably(lambda connection: records.start_call(connection, key, call.tool_name, arguments, approval, now))
    work.started_calls.add(call.tool_call_id)


async def _execute(desk: Desk, work: TurnWork, run_id: RunId, call: Call, request: ToolRequest) -> ToolOutcome:
    if is_external(desk, call.tool_name):
        return await desk.services.external.call(desk.key, call.tool_call_id, call.tool_name, request.arguments)
    work.used_box = True
    return await desk.services.toolbox.run(request, _show_output(desk, work, run_id, call))


def _show_output(desk: Desk, work: TurnWork, run_id: RunId, call: Call) -> Callable[[str], None]:
    last_shown = desk.services.clock.mono() - OUTPUT_EVERY_S

    def show(text: str) -> None:
        nonlocal last_shown
        now = desk.services.clock.mono()
        if desk.work is work and now - last_shown >= OUTPUT_EVERY_S:
            last_shown = now
            desk.publish(ToolOutput(run_id, call.tool_call_id, text[-OUTPUT_LIMIT_CHARACTERS:]))

    return show


def _check_again(desk: Desk, work: TurnWork, key: CallKey, action: do.RunCall) -> tuple[str | None, str]:
    """Why the call may not run after all, or on whose word it runs."""
    match judge_now(desk, work, action.call.tool_name, action.arguments):
        case Permitted():
            return None, "person" if action.by_person else "rules"
        case MustAsk(reason=reason):
            if action.by_person and desk.services.questions.permits(key, action.call.tool_name, action.arguments):
                return None, "person"
            return PERMISSION_CHANGED.format(reason=reason), ""
        case Refused(text):
            return text, ""
        case other:
            raise AssertionError(other)


def _comment(desk: Desk, key: CallKey) -> str:
    """What the person said as they allowed this call."""
    settlement = desk.services.questions.settlement(key)
    return settlement.answer.message if settlement is not None and isinstance(settlement.answer, Allow) else ""


def _with_comment(outcome: ToolOutcome, comment: str) -> ToolOutcome:
    if not comment:
        return outcome
    return replace(outcome, text=PERSON_SAID.format(comment=comment, text=outcome.text))


async def _finish(
    desk: Desk, work: TurnWork, batch: Batch, call: Call, outcome: ToolOutcome, status: OutcomeStatus
) -> None:
    text, shown_commit = await _with_memory_report(desk, work, call, outcome.text)
    final = ToolOutcome(outcome.status, text, outcome.overflow_path)
    journal = CallOutcome(status, text, outcome.overflow_path)
    await _record_result(desk, work, batch, call, final, journal, shown_commit)


async def _with_memory_report(desk: Desk, work: TurnWork, call: Call, text: str) -> tuple[str, str | None]:
    """Publish what a writing call committed to memory; findings join its result while the agent has the thread."""
    if call.scheduling is not Scheduling.BARRIER or is_external(desk, call.tool_name):
        return text, None
    memory, agent_id = desk.services.memory, desk.key.agent_id
    before = memory.status(agent_id).head
    try:
        async with asyncio.timeout(desk.services.options.memory_import_limit_s):
            report = await memory.import_commits(agent_id, work.place.box)
    except TimeoutError:
        return f"{text}\n\nYour memory could not be looked at for new commits in time; that is tried again.", None
    except Exception as error:  # noqa: BLE001 - said to the agent
        # Whatever befalls the memory, the call's own outcome is known and must be written down.
        return f"{text}\n\nYour memory could not be looked at for new commits: {error}", None
    if not report.moved:
        return (f"{text}\n\n{report.text}" if report.text else text), None
    # The agent knows what it wrote itself; only what others wrote is still news to it.
    knows_all = before == desk.live.state.shown_memory_commit
    return (f"{text}\n\n{report.text}" if report.text else text), report.head if knows_all else None


async def _record_result(
    desk: Desk,
    work: TurnWork,
    batch: Batch,
    call: Call,
    outcome: ToolOutcome,
    journal: CallOutcome | None,
    shown_commit: str | None = None,
) -> None:
    """Result and journal in one commit, then the transcript in memory and what clients see."""
    key, now = desk.key, desk.services.clock.wall()
    message = records.result_message(
        desk.new_message_id(), batch.run_id, call.tool_call_id, outcome.status, outcome.text, now
    )
    result = records.CallResult(CallKey(key, batch.run_id, call.tool_call_id), message, journal)

    def write(connection: sqlite3.Connection) -> None:
        records.end_calls(connection, key, work.turn_id, (result,), now)
        if shown_commit is not None:
            conversation_rows.set_shown_memory_commit(connection, key, shown_commit)

    async def commit() -> None:
        await desk.durably(write)
        desk.live.transcript.add(message)
        work.finished_calls.add(call.tool_call_id)
        if shown_commit is not None:
            desk.live.change_state(shown_memory_commit=shown_commit)
        desk.publish(ToolEnded(batch.run_id, batch.message_id, call.tool_call_id, outcome.status))
        desk.publish(ToolReturned(batch.run_id, message.message_id, call.tool_call_id, outcome.status, outcome.text))

    await finish_regardless(commit())
    desk.work_of(work.lease)


def _question(action: do.AskPerson, previews: tuple[JsonObject, ...]) -> QuestionAsked:
    call = action.call
    must_ask = call.progress if isinstance(call.progress, MustAsk) else MustAsk("")
    return QuestionAsked(
        question_id=action.question_id,
        run_id=action.batch.run_id,
        tool_call_id=call.tool_call_id,
        tool_name=call.tool_name,
        input=call.arguments,
        suggestions=tuple(PermissionSuggestion(s.id, s.text) for s in must_ask.suggestions),
        previews=tuple(_preview(diff) for diff in previews),
        reason=must_ask.reason,
    )


def _preview(diff: JsonObject) -> FilePreview:
    hunks, reason = diff.get("hunks"), diff.get("reason")
    return FilePreview(
        file_name=str(diff.get("fileName", "")),
        hunks=tuple(hunks) if isinstance(hunks, list) else None,
        reason=reason if isinstance(reason, str) else "",
    )


def _executed_json(call: Call, arguments: JsonObject) -> str:
    if arguments == call.arguments:
        return call.arguments_json
    # As models and the other clients of the wire write it.
    return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
