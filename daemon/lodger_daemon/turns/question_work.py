"""The work around questions: ask, take back, take an answer, keep the rules that came with it."""

from functools import partial
from typing import assert_never

from lodger_daemon.identity import QuestionId
from lodger_daemon.questions.core.rules import QuestionStatus
from lodger_daemon.store.question_rows import StoredQuestion
from lodger_daemon.turns.contract import Allow, Deny
from lodger_daemon.turns.core import actions as do
from lodger_daemon.turns.core import machine_events as told
from lodger_daemon.turns.core.call_phases import question_id_of
from lodger_daemon.turns.core.calls import CallProgress, MustAsk, Permitted, Refused, RefusedBy
from lodger_daemon.turns.core.events import (
    DeviceStateChanged,
    FilePreview,
    LoopStatus,
    LoopStatusChanged,
    PermissionSuggestion,
    QuestionAsked,
    QuestionSettled,
    StatusNote,
)
from lodger_daemon.turns.core.words import DENIED, NOBODY_ANSWERED
from lodger_daemon.turns.desk import Desk
from lodger_daemon.turns.services import finish_regardless
from lodger_daemon.turns.step_work import is_external
from lodger_tools.json_value import JsonObject
from lodger_tools.toolbox_contract import ToolRequest


async def ask_person(desk: Desk, action: do.AskPerson, request: ToolRequest) -> None:
    """Store the question, then show it; after a restart the stored one is shown again."""
    desk.work_of(action.lease)
    call, book, arguments = action.call, desk.services.questions, action.call.arguments
    assert arguments is not None
    if action.question_id in desk.questions:
        return
    asked = await _left_open(desk, action)
    if asked is None:
        external = is_external(desk, call.tool_name)
        previews = () if external else await desk.services.toolbox.preview(request)
        pinned = () if external else await desk.services.toolbox.pin(request)
        question = _question(action, previews)
        must_ask = call.progress
        rule = must_ask.rule if isinstance(must_ask, MustAsk) else None
        asking = desk.until_stored(lambda: book.ask(desk.key, question, arguments, pinned, rule))
        asked = await finish_regardless(asking)
    desk.work_of(action.lease)
    desk.questions[asked.question_id] = asked
    desk.questions_changed()
    desk.publish(asked)
    desk.publish(LoopStatusChanged(LoopStatus.WAITING_ON_APPROVAL, action.batch.run_id))
    desk.publish(DeviceStateChanged())


async def withdraw_questions(desk: Desk, only: frozenset[QuestionId] | None = None) -> frozenset[QuestionId]:
    """Take back open questions of the conversation, all or some; those that a person was quicker to answer are not
    among the returned."""
    book = desk.services.questions
    withdrawn = await finish_regardless(desk.until_stored(lambda: book.withdraw(desk.key, only)))
    for settled in withdrawn:
        desk.questions.pop(settled.question.asked.question_id, None)
        desk.tell_asker(settled.question.asked.question_id, None)
        desk.publish(QuestionSettled(settled.question.asked.question_id, "withdrawn"))
    return frozenset(settled.question.asked.question_id for settled in withdrawn)


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
        else:
            book, rule = desk.services.questions, suggestion.rule
            await desk.until_stored(partial(book.rule_saved, desk.key, rule))
    desk.work_of(action.lease)
    desk.feed(told.RulesSaved(action.lease))


def progress_of_question(question: StoredQuestion) -> CallProgress | None:
    """What a question that has been settled means for its call, which has not started."""
    settlement = question.settlement
    if settlement is None or settlement.status is QuestionStatus.WITHDRAWN:
        return None
    match settlement.answer:
        case Allow(updated_input=changed):
            return Permitted(question.arguments if changed is None else changed, by_person=True)
        case Deny(message):
            return Refused(message or DENIED, RefusedBy.PERSON)
        case None:
            return Refused(NOBODY_ANSWERED, RefusedBy.NOBODY)
        case _:
            assert_never(settlement.answer)


async def _left_open(desk: Desk, action: do.AskPerson) -> QuestionAsked | None:
    """The question about this call that an earlier daemon asked; others it left for calls that need none are ended."""
    wanted = frozenset(
        question_id_of(call.tool_call_id) for call in action.batch.calls if isinstance(call.progress, MustAsk)
    )
    pending = {asked.question_id: asked for asked in desk.services.questions.pending(desk.key)}
    stale = {name for name, asked in pending.items() if asked.run_id != action.batch.run_id}
    if left_over := frozenset(name for name in pending if name in stale or name not in wanted):
        await withdraw_questions(desk, left_over)
    return None if action.question_id in stale else pending.get(action.question_id)


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
