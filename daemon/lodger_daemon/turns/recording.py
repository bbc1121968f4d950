"""The commit that a step ends with when it called tools: its run, its answer, and the start of what may run at once."""

import sqlite3
from dataclasses import dataclass
from typing import Literal

from lodger_daemon.clock import WallTime
from lodger_daemon.identity import CallKey, ConversationKey, ToolCallId, TurnId
from lodger_daemon.store.journal_rows import CallOutcome, OutcomeStatus
from lodger_daemon.store.run_rows import RunStatus
from lodger_daemon.turns import records
from lodger_daemon.turns.call_work import CallStart, cleared_by_rules
from lodger_daemon.turns.core import actions as do
from lodger_daemon.turns.core import machine_events as told
from lodger_daemon.turns.core.calls import Batch, Permitted, Undecided, ready_to_run
from lodger_daemon.turns.core.events import ToolCallRequested
from lodger_daemon.turns.desk import Desk, Step, TurnWork
from lodger_daemon.turns.early_reads import EndedRead, ended_reads
from lodger_daemon.turns.judge_work import judge_now, tool_request
from lodger_daemon.turns.services import finish_regardless
from lodger_daemon.turns.step_work import (
    admission_of,
    admitted,
    assembled_calls,
    assistant_message,
    publish_step_end,
)
from lodger_tools.permissions.core.verdicts import Allowed


@dataclass(frozen=True, slots=True)
class StepPage:
    """Everything that is committed with the end of a step that called tools."""

    key: ConversationKey
    turn_id: TurnId
    admission: records.Admission | None
    end: records.StepEnd
    starts: tuple[CallStart, ...]
    results: tuple[records.CallResult, ...]
    """Of all its calls, or of none."""
    now: WallTime

    def write(self, connection: sqlite3.Connection) -> None:
        if self.admission is not None:
            records.admit(connection, self.key, self.admission, self.now)
        records.end_step(connection, self.key, self.turn_id, self.end, self.now)
        for start in self.starts:
            start.write(connection)
        records.end_calls(connection, self.key, self.turn_id, self.results, self.now)


async def record(desk: Desk, action: do.RecordStep) -> None:
    """Write down a step that called tools. Nothing of it runs before but calls that only read.

    A call that waits for nobody is started on paper in the same commit, and judged again before it runs. When all
    calls only read and have ended in a moment, their results are in it too, and the turn goes on beside it.
    """
    work = desk.work_of(action.lease)
    step = work.step
    assert step is not None
    starts = await _starts(desk, work, action.batch)
    desk.work_of(action.lease)
    ended = await ended_reads(desk, work, action.batch, starts)
    desk.work_of(action.lease)
    page = _page_of(desk, work, step, action, starts, ended)

    async def commit() -> None:
        await desk.durably(page.write)
        _remember(desk, work, step, page)

    def go_on() -> None:
        _remember(desk, work, step, page)
        _tell(desk, step, action, page)

    if ended:
        await desk.settled()
        desk.work_of(action.lease)
        await desk.durably_beside(work, page.write, go_on)
        return
    await finish_regardless(commit())
    desk.work_of(action.lease)
    _tell(desk, step, action, page)


def _page_of(
    desk: Desk,
    work: TurnWork,
    step: Step,
    action: do.RecordStep,
    starts: tuple[CallStart, ...],
    ended: tuple[EndedRead, ...],
) -> StepPage:
    now = desk.services.clock.wall()
    message = assistant_message(desk, step, with_calls=True)
    return StepPage(
        key=desk.key,
        turn_id=work.turn_id,
        admission=None if step.admitted else admission_of(desk, work, step, step.run_id),
        end=records.StepEnd(
            step.run_id, RunStatus.COMPLETED, action.stop_reason, message, charge=desk.charge(work, step)
        ),
        starts=starts,
        results=tuple(_result_of(desk, action.batch, one, now) for one in ended),
        now=now,
    )


def _result_of(desk: Desk, batch: Batch, ended: EndedRead, now: WallTime) -> records.CallResult:
    outcome, call_id = ended.outcome, ended.call.tool_call_id
    message = records.result_message(desk.new_message_id(), batch.run_id, call_id, outcome.status, outcome.text, now)
    journal = CallOutcome(OutcomeStatus(outcome.status), outcome.text, outcome.overflow_path)
    return records.CallResult(CallKey(desk.key, batch.run_id, call_id), message, journal)


def _remember(desk: Desk, work: TurnWork, step: Step, page: StepPage) -> None:
    """The change of memory that goes with the commit."""
    if page.admission is not None:
        admitted(desk, work, step, page.admission)
    step.ended = True
    work.batch_recorded = True
    work.run_id = step.run_id
    work.started_calls.update(start.key.tool_call_id for start in page.starts)
    work.finished_calls.update(result.call.tool_call_id for result in page.results)
    if page.end.message is not None:
        desk.live.transcript.add(page.end.message)
    for result in page.results:
        desk.live.transcript.add(result.message)


def _tell(desk: Desk, step: Step, action: do.RecordStep, page: StepPage) -> None:
    if page.admission is not None:
        desk.feed(told.StepAdmitted(action.lease, step.run_id))
    for call in assembled_calls(step):
        desk.publish(
            ToolCallRequested(step.run_id, step.calls_message_id, call.tool_call_id, call.name, call.arguments_json)
        )
    publish_step_end(desk, step, action.stop_reason)
    started = frozenset(start.key.tool_call_id for start in page.starts)
    ended = tuple(_ended_call(result) for result in page.results)
    desk.feed(told.StepRecorded(action.lease, step.run_id, started, ended))


def _ended_call(result: records.CallResult) -> told.EndedCall:
    message = result.message
    status: Literal["success", "error"] = "success" if message.content["status"] == "success" else "error"
    return told.EndedCall(result.call.tool_call_id, message.message_id, status, str(message.content["text"]))


async def _starts(desk: Desk, work: TurnWork, batch: Batch) -> tuple[CallStart, ...]:
    """Of the calls that run next; none unless the rules allow the whole batch and need no look at a file for it."""
    allowed: dict[ToolCallId, Allowed] = {}
    for call in batch.calls:
        if not isinstance(call.progress, Undecided):
            continue
        assert call.arguments is not None
        if desk.services.judge.looks_at_paths(call.tool_name):
            return ()
        request = tool_request(desk, work, batch.run_id, call.tool_call_id, call.tool_name, call.arguments)
        verdict = await judge_now(desk, work, call.arguments, request)
        if not isinstance(verdict, Allowed):
            return ()
        allowed[call.tool_call_id] = verdict
    permitted = batch.map(
        lambda call: Permitted(call.arguments or {}) if call.tool_call_id in allowed else call.progress
    )
    now = desk.services.clock.wall()
    return tuple(
        CallStart(
            CallKey(desk.key, batch.run_id, call.tool_call_id),
            call.tool_name,
            call.arguments or {},
            cleared_by_rules(allowed[call.tool_call_id]),
            now,
        )
        for call in ready_to_run(permitted)
    )
