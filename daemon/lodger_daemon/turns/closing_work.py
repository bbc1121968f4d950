"""The end of a turn on paper: in good order, after a failure, after an abort."""

import asyncio
import logging
import sqlite3
from dataclasses import dataclass

from lodger_daemon.clock import WallTime
from lodger_daemon.identity import RunId, TurnId
from lodger_daemon.store import inbox_rows, turn_rows
from lodger_daemon.store.journal_rows import OutcomeStatus
from lodger_daemon.store.run_rows import RunStatus
from lodger_daemon.turns import records
from lodger_daemon.turns.call_work import end_on_paper
from lodger_daemon.turns.core import actions as do
from lodger_daemon.turns.core import machine_events as told
from lodger_daemon.turns.core.calls import Batch, Call, Running
from lodger_daemon.turns.core.events import StatusNote, ToolEnded, ToolReturned
from lodger_daemon.turns.core.stop_reasons import StopReason
from lodger_daemon.turns.core.words import EFFECT_UNKNOWN, INTERRUPTED
from lodger_daemon.turns.desk import Desk, Step, TurnWork
from lodger_daemon.turns.question_work import withdraw_questions
from lodger_daemon.turns.records import CallResult
from lodger_daemon.turns.step_work import admission_of, admitted, assistant_message, publish_step_end

logger = logging.getLogger(__name__)

GOOD_ENDS = frozenset({StopReason.END_TURN, StopReason.MAX_TOKENS_EXCEEDED})
STOP_LIMIT_S = 60.0
"""A box ends its processes and a model's stream closes within seconds; what takes longer is broken."""
STOP_LOOK_S = 1.0
"""A machine that slept, or a process that was stopped, finds a whole limit gone at once: then one look of it is."""
DOES_NOT_STOP = "Something that this turn had started does not stop. The conversation goes on without it."
NEVER_RAN = "The turn broke off before this call ran. It had no effect."


@dataclass(frozen=True, slots=True)
class LastPage:
    """Everything that is committed with the end of a turn."""

    admission: records.Admission | None
    step_end: records.StepEnd | None
    results: tuple[CallResult, ...]
    turn_end: records.TurnEnd


async def close(desk: Desk, action: do.CloseTurn) -> None:
    work = desk.work_of(action.lease)
    if desk.questions:
        # Of a program that a call left behind: no turn, nobody to answer.
        await _withdraw_questions(desk)
        desk.work_of(action.lease)
    step = work.step if action.with_run is not None else None
    status = RunStatus.COMPLETED if action.stop_reason in GOOD_ENDS else RunStatus.FAILED
    end = records.TurnEnd(work.turn_id, action.stop_reason, action.turn.run_id, action.error)
    await _write_last_page(desk, work, step, status, (), end)
    if step is not None:
        publish_step_end(desk, step, action.stop_reason)
    _leave(desk, work)
    desk.feed(told.TurnClosed(action.lease))


async def unwind(desk: Desk, action: do.Unwind) -> None:
    """Stop all work of the lease, then write down how far it came."""
    work = desk.work_of(action.lease)
    await stop_tasks(desk, work)
    if desk.stopping:
        return
    if (unstored := work.unstored) is not None:
        # What is in memory is ahead of the disk. An end that cannot be written has the conversation read anew.
        work.unstored = None
        raise unstored
    await _withdraw_questions(desk)
    if work.interruption is not None:
        # Or the next turn would take what this parks.
        await asyncio.wait({work.interruption})
    step = work.step if work.step is not None and not work.step.ended else None
    batch = action.batch if work.batch_recorded else None
    open_calls = _open_calls(work, batch)
    now = desk.services.clock.wall()
    results = tuple(
        _end_of(desk, work, batch, call, action.stop_reason, now) for call in open_calls if batch is not None
    )
    status = RunStatus.CANCELLED if action.stop_reason is StopReason.CANCELLED else RunStatus.FAILED
    end = records.TurnEnd(work.turn_id, action.stop_reason, action.turn.run_id, action.error)
    await _write_last_page(desk, work, step, status, results, end)
    if batch is not None:
        _publish_ends(desk, batch, open_calls, results)
    _leave(desk, work)
    desk.feed(told.Unwound(action.lease))


async def keep_interruption(desk: Desk, turn_id: TurnId) -> None:
    """A person stopped this turn: that is kept, and what waits stays where it is until they go on."""
    key, now = desk.key, desk.services.clock.wall()

    def write(connection: sqlite3.Connection) -> int:
        turn = turn_rows.get(connection, turn_id)
        if turn is not None and turn.status == "active":
            records.mark_aborted(connection, turn_id, now)
        return inbox_rows.park(connection, key)

    if await desk.durably(write):
        desk.publish_queue()


async def stop_tasks(desk: Desk, work: TurnWork) -> None:
    """Cancel and await all tasks of a turn but the one that asks: nothing of it runs beside the next one.

    What does not stop in time has no lease any more and can write nothing down.
    """
    begun = [task for task in work.tasks if task is not asyncio.current_task()]
    for task in begun:
        task.cancel()
    tasks = set(begun)
    left_s = STOP_LIMIT_S
    while tasks:
        look_s = min(STOP_LOOK_S, left_s)
        _, tasks = await asyncio.wait(tasks, timeout=look_s)
        left_s = STOP_LIMIT_S if desk.waits_for_disk else left_s - look_s
        if tasks and left_s <= 0:
            logger.error("%s: %d tasks of turn %s do not stop", desk.key, len(tasks), work.turn_id)
            desk.publish(StatusNote(DOES_NOT_STOP, "warning"))
            return


async def _write_last_page(
    desk: Desk,
    work: TurnWork,
    step: Step | None,
    status: RunStatus,
    results: tuple[CallResult, ...],
    turn_end: records.TurnEnd,
) -> None:
    """The turn's own input joins the transcript here if no model took it up: neither lost nor run again. What had
    joined in mid-turn goes back to the head of the queue; a person's stop parks it there."""
    key, now = desk.key, desk.services.clock.wall()
    returns = work.folded and work.pending is not None and (step is None or not step.admitted)
    if returns:
        work.pending = None
    page = _last_page(desk, work, step, status, results, turn_end)

    def write(connection: sqlite3.Connection) -> None:
        if returns:
            records.give_back(connection, key, work.turn_id, parked=work.interruption is not None)
        if page.admission is not None:
            records.admit(connection, key, page.admission, now)
        if page.step_end is not None:
            records.end_step(connection, key, work.turn_id, page.step_end, now)
        records.end_calls(connection, key, work.turn_id, page.results, now)
        records.end_turn(connection, key, page.turn_end, now)

    if work.reserved:
        await desk.durably(write)
    if page.admission is not None:
        admitted(desk, work, step, page.admission)
    if page.step_end is not None:
        if step is not None:
            step.ended = True
        if page.step_end.message is not None:
            desk.live.transcript.add(page.step_end.message)
    for result in results:
        desk.live.transcript.add(result.message)
    if returns:
        desk.publish_queue()


def _last_page(
    desk: Desk,
    work: TurnWork,
    step: Step | None,
    status: RunStatus,
    results: tuple[CallResult, ...],
    turn_end: records.TurnEnd,
) -> LastPage:
    admission: records.Admission | None = None
    step_end: records.StepEnd | None = None
    run_id = _run_id(desk, work, step)
    if run_id is not None:
        if step is None or not step.admitted:
            admission = admission_of(desk, work, step, run_id)
        message = assistant_message(desk, step, with_calls=False) if step is not None else None
        charge = desk.charge(work, step)
        step_end = records.StepEnd(run_id, status, turn_end.stop_reason, message, turn_end.error, charge)
    return LastPage(admission, step_end, results, turn_end)


def _run_id(desk: Desk, work: TurnWork, step: Step | None) -> RunId | None:
    """The run that ends with the turn: the unrecorded step, or one made up for an input no model has seen."""
    if step is not None and (step.admitted or work.pending is not None):
        return step.run_id
    return desk.new_run_id() if work.pending is not None else None


async def _withdraw_questions(desk: Desk) -> None:
    desk.questions.clear()
    if desk.services.questions.pending(desk.key):
        await withdraw_questions(desk)


def _open_calls(work: TurnWork, batch: Batch | None) -> tuple[Call, ...]:
    if batch is None:
        return ()
    return tuple(call for call in batch.unfinished if call.tool_call_id not in work.finished_calls)


def _end_of(desk: Desk, work: TurnWork, batch: Batch, call: Call, stop_reason: StopReason, now: WallTime) -> CallResult:
    started = call.tool_call_id in work.started_calls
    if stop_reason is StopReason.CANCELLED:
        return end_on_paper(desk, batch, call, OutcomeStatus.INTERRUPTED, INTERRUPTED, started, now)
    text = EFFECT_UNKNOWN if started else NEVER_RAN
    return end_on_paper(desk, batch, call, OutcomeStatus.UNKNOWN, text, started, now)


def _publish_ends(desk: Desk, batch: Batch, calls: tuple[Call, ...], results: tuple[CallResult, ...]) -> None:
    """Only calls that clients saw running get an end (PROTOCOL.md 6.2). A result is shown of what the journal knows."""
    for call, result in zip(calls, results, strict=True):
        seen_running = isinstance(call.progress, Running)
        if not seen_running and result.outcome is None:
            continue
        text = str(result.message.content["text"])
        if seen_running:
            desk.publish(ToolEnded(batch.run_id, batch.message_id, call.tool_call_id, "error"))
        desk.publish(ToolReturned(batch.run_id, result.message.message_id, call.tool_call_id, "error", text))


def _leave(desk: Desk, work: TurnWork) -> None:
    """The lease's papers are done with; whatever still asks for them ends."""
    if desk.work is work:
        desk.work = None
        desk.last_was_queued = work.queued
        desk.last_box = work.place.box if work.used_box else None
        desk.live.worked_in = desk.last_box or desk.live.worked_in
