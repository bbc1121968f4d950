"""Questions beside the turn: the person is asked while a call runs or has just ended, and the call goes on waiting.

The machine of the turn does not see these questions, and nothing else waits for them.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from lodger_daemon.identity import CallKey, QuestionId, ToolCallId
from lodger_daemon.turns.contract import Answer
from lodger_daemon.turns.core.events import (
    DeviceStateChanged,
    LoopStatus,
    LoopStatusChanged,
    PermissionSuggestion,
    QuestionAsked,
    StatusNote,
)
from lodger_daemon.turns.core.own_questions import OwnQuestion
from lodger_daemon.turns.desk import Desk, TurnWork
from lodger_daemon.turns.question_work import withdraw_questions
from lodger_daemon.turns.services import finish_regardless
from lodger_tools.box.contract import BoxKey
from lodger_tools.json_value import JsonObject

_ID_PREFIX: Final = "side-"


@dataclass(frozen=True, slots=True)
class SideQuestion:
    kind: OwnQuestion
    about: JsonObject
    reason: str
    limit_s: float
    suggestions: tuple[PermissionSuggestion, ...] = ()


def is_beside(question_id: QuestionId) -> bool:
    return question_id.startswith(_ID_PREFIX)


def desk_for(box: BoxKey, desks: Iterable[Desk]) -> Desk | None:
    """Of the conversation that works in this box. Where several share it, nothing tells whose program it is; then the
    first is asked, and so it is when a call was let into a folder of its own."""
    able = [desk for desk in desks if _can_ask(desk)]
    there = [desk for desk in able if desk.work is not None and desk.work.place.box == box]
    return next(iter(there or able), None)


def tell_last(box: BoxKey, desks: Iterable[Desk], text: str) -> bool:
    """A line about a box in which no turn works, for a conversation that did so last. False when there is none."""
    last = next((desk for desk in desks if not desk.stopping and desk.live.worked_in == box), None)
    if last is None:
        return False
    last.publish(StatusNote(text, "info"))
    return True


def _can_ask(desk: Desk) -> bool:
    work = desk.work
    return work is not None and not desk.stopping and work.used_box and work.settings.can_answer_questions


def answered(desk: Desk, question_id: QuestionId, answer: Answer) -> None:
    """The person's answer to such a question is on paper."""
    if not desk.tell_asker(question_id, answer):
        desk.early_answers[question_id] = answer


async def ask(desk: Desk, question: SideQuestion) -> Answer | None:
    """None when nobody answered in time. The same question that an earlier daemon asked is shown again, and its answer
    holds."""
    work = desk.work
    if work is None or work.run_id is None:
        return None
    given = _answered_early(desk, work, question)
    return given if given is not None else await _shown(desk, await _stored(desk, work, question))


async def _stored(desk: Desk, work: TurnWork, question: SideQuestion) -> QuestionAsked:
    assert work.run_id is not None
    for left in desk.services.questions.pending(desk.key):
        if left.tool_name == question.kind and left.input == question.about and left.question_id not in desk.askers:
            return left
    name = f"{_ID_PREFIX}{desk.services.rng.uuid()}"
    asked = QuestionAsked(
        QuestionId(name),
        work.run_id,
        ToolCallId(name),
        question.kind.value,
        question.about,
        question.suggestions,
        reason=question.reason,
    )
    return await finish_regardless(
        desk.services.questions.ask(desk.key, asked, question.about, limit_s=question.limit_s)
    )


async def _shown(desk: Desk, asked: QuestionAsked) -> Answer | None:
    answer: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()
    desk.askers[asked.question_id] = answer
    desk.questions[asked.question_id] = asked
    desk.questions_changed()
    before = desk.loop_status
    desk.publish(asked)
    if before.status is LoopStatus.EXECUTING_CLIENT_SIDE_TOOL:
        desk.publish(LoopStatusChanged(LoopStatus.WAITING_ON_APPROVAL, before.run_id))
    desk.publish(DeviceStateChanged())
    try:
        return await answer
    except asyncio.CancelledError:
        if not desk.stopping:
            await withdraw_questions(desk, frozenset({asked.question_id}))
        raise
    finally:
        desk.askers.pop(asked.question_id, None)
        if not desk.stopping:
            _show_the_rest(desk, before)


def _show_the_rest(desk: Desk, before: LoopStatusChanged) -> None:
    """What went on meanwhile goes on, unless another question is on screen or the turn has moved on."""
    if (
        desk.work is not None
        and not desk.questions
        and desk.loop_status.status is LoopStatus.WAITING_ON_APPROVAL
        and before.status is LoopStatus.EXECUTING_CLIENT_SIDE_TOOL
    ):
        desk.publish(LoopStatusChanged(before.status, before.run_id, before.executing))
    desk.publish(DeviceStateChanged())


def _answered_early(desk: Desk, work: TurnWork, question: SideQuestion) -> Answer | None:
    """The person's answer, from a screen of before a restart, was quicker than the asking again."""
    assert work.run_id is not None
    for question_id in tuple(desk.early_answers):
        call = CallKey(desk.key, work.run_id, ToolCallId(question_id))
        stored = desk.services.questions.latest(call)
        if stored is None:
            del desk.early_answers[question_id]
        elif stored.asked.tool_name == question.kind and stored.arguments == question.about:
            return desk.early_answers.pop(question_id)
    return None
