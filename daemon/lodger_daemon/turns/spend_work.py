"""The work around what a turn may spend: charge each step, and ask the person when a limit is reached."""

import sqlite3

from lodger_daemon.identity import CallKey, RunId, ToolCallId
from lodger_daemon.questions.core.rules import QuestionStatus
from lodger_daemon.spend.contract import LimitReached, limit_from_json, limit_to_json
from lodger_daemon.store import run_rows, spend_rows
from lodger_daemon.store.question_rows import StoredQuestion
from lodger_daemon.store.run_rows import RunStatus
from lodger_daemon.turns import records
from lodger_daemon.turns.contract import Allow, Answer, Deny
from lodger_daemon.turns.core import actions as do
from lodger_daemon.turns.core import machine_events as told
from lodger_daemon.turns.core.events import DeviceStateChanged, LoopStatus, LoopStatusChanged, QuestionAsked
from lodger_daemon.turns.core.own_questions import OwnQuestion
from lodger_daemon.turns.core.stop_reasons import StopReason
from lodger_daemon.turns.desk import Desk, TurnWork
from lodger_daemon.turns.question_work import withdraw_questions
from lodger_daemon.turns.services import finish_regardless
from lodger_daemon.turns.step_work import admission_of, admitted, new_step


async def limit_reached(desk: Desk, work: TurnWork) -> LimitReached | None:
    """What stands in the way of the next step of this turn; None = nothing."""
    spend = desk.services.spend
    if spend is None:
        return None
    return await spend.reached(desk.key.agent_id, work.turn_id, desk.live.handle)


async def stop_at(desk: Desk, work: TurnWork, action: do.PrepareStep, limit: LimitReached) -> None:
    run_id = await _run_to_ask_under(desk, work)
    desk.work_of(action.lease)
    settings = work.settings
    desk.feed(told.SpendStopped(action.lease, run_id, limit, settings.can_answer_questions, action.remind_of_empty))


async def ask(desk: Desk, action: do.AskAboutSpend) -> None:
    """Store the question, then show it; after a restart the stored one is shown again, and a settled one holds."""
    desk.work_of(action.lease)
    book, name = desk.services.questions, ToolCallId(action.question_id)
    settlement = book.settlement(CallKey(desk.key, action.run_id, name))
    if settlement is not None and settlement.status is QuestionStatus.DENIED:
        desk.feed(told.AnswerGiven(action.question_id, Deny("")))
        return
    if settlement is not None and settlement.status is QuestionStatus.EXPIRED:
        desk.feed(told.QuestionLapsed(action.question_id))
        return
    asked = next((one for one in book.pending(desk.key) if one.question_id == action.question_id), None)
    if asked is None:
        if book.pending(desk.key):
            await withdraw_questions(desk)
        about = limit_to_json(action.limit)
        question = QuestionAsked(
            action.question_id, action.run_id, name, OwnQuestion.SPEND.value, about, reason=action.limit.words
        )
        asked = await finish_regardless(desk.until_stored(lambda: book.ask(desk.key, question, about)))
    desk.work_of(action.lease)
    desk.questions[asked.question_id] = asked
    desk.questions_changed()
    desk.publish(asked)
    desk.publish(LoopStatusChanged(LoopStatus.WAITING_ON_APPROVAL, action.run_id))
    desk.publish(DeviceStateChanged())


def plain(answer: Answer) -> Answer:
    """A limit is raised as the question said or not at all."""
    return Allow(answer.message) if isinstance(answer, Allow) else answer


def raise_it(desk: Desk, connection: sqlite3.Connection, question: StoredQuestion) -> None:
    """In the commit that takes the person's word."""
    limit = limit_from_json(question.arguments)
    if limit is not None:
        spend_rows.raise_limit(connection, limit, desk.services.clock.wall())


async def _run_to_ask_under(desk: Desk, work: TurnWork) -> RunId:
    """The run that the transcript ends with; before there is one, a run that ends at once and makes the input part of
    the conversation, so that the same question is found again after a restart."""
    if work.run_id is not None:
        return work.run_id
    built = await desk.backend.build(desk.standing(work), desk.live.transcript, work.pending, None)
    step = new_step(desk, built)
    admission = admission_of(desk, work, step, step.run_id)
    key, now = desk.key, desk.services.clock.wall()

    def write(connection: sqlite3.Connection) -> None:
        records.admit(connection, key, admission, now)
        run_rows.end(connection, step.run_id, RunStatus.CANCELLED, StopReason.INSUFFICIENT_CREDITS, now)

    async def commit() -> None:
        await desk.durably(write)
        admitted(desk, work, None, admission)

    await finish_regardless(commit())
    return step.run_id
