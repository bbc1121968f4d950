"""The commit that a step ends with when it called tools: its run, its answer, and the start of what may run at once."""

import sqlite3

from lodger_daemon.identity import CallKey, ToolCallId
from lodger_daemon.store.run_rows import RunStatus
from lodger_daemon.turns import records
from lodger_daemon.turns.call_work import CallStart, cleared_by_rules
from lodger_daemon.turns.core import actions as do
from lodger_daemon.turns.core import machine_events as told
from lodger_daemon.turns.core.calls import Batch, Permitted, Undecided, ready_to_run
from lodger_daemon.turns.core.events import ToolCallRequested
from lodger_daemon.turns.desk import Desk, TurnWork
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


async def record(desk: Desk, action: do.RecordStep) -> None:
    """Write down a step that called tools; nothing of it runs before.

    A call that waits for nobody is started on paper in the same commit. It is judged again before it runs.
    """
    work = desk.work_of(action.lease)
    step = work.step
    assert step is not None
    message = assistant_message(desk, step, with_calls=True)
    end = records.StepEnd(step.run_id, RunStatus.COMPLETED, action.stop_reason, message, charge=desk.charge(work, step))
    admission = None if step.admitted else admission_of(work, step, step.run_id)
    starts = await _starts(desk, work, action.batch)
    desk.work_of(action.lease)
    key, now = desk.key, desk.services.clock.wall()

    def write(connection: sqlite3.Connection) -> None:
        if admission is not None:
            records.admit(connection, key, admission, now)
        records.end_step(connection, key, work.turn_id, end, now)
        for start in starts:
            start.write(connection)

    async def commit() -> None:
        await desk.durably(write)
        if admission is not None:
            admitted(desk, work, step, admission)
        step.ended = True
        work.batch_recorded = True
        work.run_id = step.run_id
        work.started_calls.update(start.key.tool_call_id for start in starts)
        if message is not None:
            desk.live.transcript.add(message)

    await finish_regardless(commit())
    desk.work_of(action.lease)
    if admission is not None:
        desk.feed(told.StepAdmitted(action.lease, step.run_id))
    for call in assembled_calls(step):
        desk.publish(
            ToolCallRequested(step.run_id, step.calls_message_id, call.tool_call_id, call.name, call.arguments_json)
        )
    publish_step_end(desk, step, action.stop_reason)
    desk.feed(told.StepRecorded(action.lease, step.run_id))


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
