"""The work around tool calls: ask, check once more, run, write down."""

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal, assert_never

from lodger_daemon.clock import WallTime
from lodger_daemon.identity import CallKey, RunId
from lodger_daemon.questions.core.arguments import arguments_digest
from lodger_daemon.questions.core.rules import permits
from lodger_daemon.questions.decisions import call_row
from lodger_daemon.store import audit_rows, conversation_rows, journal_rows
from lodger_daemon.store.journal_rows import CallOutcome, OutcomeStatus
from lodger_daemon.turns import question_work, records
from lodger_daemon.turns.contract import Allow
from lodger_daemon.turns.core import actions as do
from lodger_daemon.turns.core import machine_events as told
from lodger_daemon.turns.core.calls import Batch, Call, Refused, RefusedBy
from lodger_daemon.turns.core.events import CallRefused, ToolEnded, ToolOutput, ToolReturned, ToolStarted
from lodger_daemon.turns.core.words import EFFECT_UNKNOWN, PERMISSION_CHANGED, PERSON_SAID
from lodger_daemon.turns.desk import Desk, TurnWork
from lodger_daemon.turns.judge_work import judge_now, tool_request
from lodger_daemon.turns.services import finish_regardless
from lodger_daemon.turns.step_work import is_external
from lodger_tools.box.contract import PinnedFile
from lodger_tools.json_value import JsonObject
from lodger_tools.permissions.core.verdicts import Allowed, Denied, NeedsPerson
from lodger_tools.toolbox_contract import EffectUnknown, Scheduling, ToolOutcome, ToolRequest

OUTPUT_LIMIT_CHARACTERS: Final = 30_000
"""Of a snapshot of running output; the peer's figure."""

OUTPUT_EVERY_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Clearance:
    """On whose word a call runs."""

    by: Literal["rules", "person"]
    reason: str
    rule: str | None = None
    pinned: tuple[PinnedFile, ...] = ()


@dataclass(frozen=True, slots=True)
class CallStart:
    """What is committed before a call may have any effect; a call is started once for ever."""

    key: CallKey
    tool_name: str
    arguments: JsonObject
    cleared: Clearance
    at: WallTime

    def write(self, connection: sqlite3.Connection) -> None:
        key, cleared = self.key, self.cleared
        digest = arguments_digest(self.tool_name, self.arguments)
        detail: JsonObject = {"reason": cleared.reason, "rule": cleared.rule, "arguments": digest}
        journal_rows.start(connection, key, self.tool_name, self.arguments, digest, cleared.by, self.at)
        row = call_row(key, self.tool_name, self.at, cleared.by, allowed=True, detail=detail)
        audit_rows.record(connection, row)


def cleared_by_rules(verdict: Allowed) -> Clearance:
    return Clearance("rules", verdict.reason, verdict.rule)


async def ask_person(desk: Desk, action: do.AskPerson) -> None:
    work, call = desk.work_of(action.lease), action.call
    assert call.arguments is not None
    request = tool_request(desk, work, action.batch.run_id, call.tool_call_id, call.tool_name, call.arguments)
    await question_work.ask_person(desk, action, request)


async def refuse_call(desk: Desk, action: do.RefuseCall) -> None:
    work = desk.work_of(action.lease)
    progress = action.call.progress
    refusal = progress if isinstance(progress, Refused) else Refused(action.text)
    await _refuse(desk, work, action.batch, action.call, refusal)


async def run_call(desk: Desk, action: do.RunCall) -> None:
    """Judged once more, started on paper, run, finished on paper: in this order."""
    work = desk.work_of(action.lease)
    call = action.call
    key = CallKey(desk.key, action.batch.run_id, call.tool_call_id)
    request = tool_request(desk, work, action.batch.run_id, call.tool_call_id, call.tool_name, action.arguments)
    cleared = await _check_again(desk, work, key, action, request)
    desk.work_of(action.lease)
    if isinstance(cleared, Refused):
        await _refuse(desk, work, action.batch, call, cleared)
        return
    comment = _comment(desk, key) if action.by_person else ""
    if call.tool_call_id not in work.started_calls:
        start = CallStart(key, call.tool_name, action.arguments, cleared, desk.services.clock.wall())
        await finish_regardless(_write_start(desk, work, start))
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
    try:
        if (reading := work.reading.pop(call.tool_call_id, None)) is not None:
            # Begun with its step: whoever stops this turn stops it too.
            await asyncio.wait({reading})
            outcome = reading.result()
        else:
            outcome = await execute(desk, work, action.batch.run_id, call, replace(request, pinned=cleared.pinned))
        status = OutcomeStatus(outcome.status)
    except EffectUnknown:
        if desk.stopping:
            # The box was let go of because the daemon stops; the next daemon collects the outcome from it.
            return
        outcome, status = ToolOutcome("error", EFFECT_UNKNOWN), OutcomeStatus.UNKNOWN
    outcome = _with_comment(outcome, comment)
    await _finish(desk, work, action.batch, call, outcome, status)


async def collect_call(desk: Desk, work: TurnWork, batch: Batch, call: Call, arguments: JsonObject) -> None:
    """Find out how a call of an earlier daemon ended. It is never run again."""
    work.started_calls.add(call.tool_call_id)
    comment = _comment(desk, CallKey(desk.key, batch.run_id, call.tool_call_id))
    outcome: ToolOutcome | None = None
    if not is_external(desk, call.tool_name):
        request = tool_request(desk, work, batch.run_id, call.tool_call_id, call.tool_name, arguments)
        try:
            with _in_its_box(work, call, request):
                outcome = await _collect(desk, CallKey(desk.key, batch.run_id, call.tool_call_id), request)
        except EffectUnknown:
            outcome = None
    if desk.stopping:
        return
    if outcome is None:
        unknown = ToolOutcome("error", EFFECT_UNKNOWN)
        await _finish(desk, work, batch, call, unknown, OutcomeStatus.UNKNOWN)
    else:
        await _finish(desk, work, batch, call, _with_comment(outcome, comment), OutcomeStatus(outcome.status))


def end_on_paper(
    desk: Desk, batch: Batch, call: Call, status: OutcomeStatus, text: str, started: bool, now: WallTime
) -> records.CallResult:
    """The result of a call that will never end by itself."""
    message = records.result_message(desk.new_message_id(), batch.run_id, call.tool_call_id, "error", text, now)
    outcome = CallOutcome(status, text) if started else None
    return records.CallResult(CallKey(desk.key, batch.run_id, call.tool_call_id), message, outcome)


async def _write_start(desk: Desk, work: TurnWork, start: CallStart) -> None:
    await desk.durably(start.write)
    work.started_calls.add(start.key.tool_call_id)


async def _refuse(desk: Desk, work: TurnWork, batch: Batch, call: Call, refusal: Refused) -> None:
    key = CallKey(desk.key, batch.run_id, call.tool_call_id)
    # What a person or a model wrote does not belong into the log; what a rule says does.
    by_rules = refusal.by in (RefusedBy.RULES, RefusedBy.NOBODY)
    detail: JsonObject = {"reason": refusal.text if by_rules else "", "rule": refusal.rule}
    row = call_row(key, call.tool_name, desk.services.clock.wall(), refusal.by.value, allowed=False, detail=detail)
    outcome = ToolOutcome("error", refusal.text, refused=True)
    on_paper = call.tool_call_id in work.started_calls
    journal = CallOutcome(OutcomeStatus.ERROR, refusal.text) if on_paper else None
    desk.publish(CallRefused(batch.run_id, call.tool_call_id, refusal.by.value))
    await _record_result(desk, work, batch, call, outcome, journal, decision=row)


async def execute(desk: Desk, work: TurnWork, run_id: RunId, call: Call, request: ToolRequest) -> ToolOutcome:
    """Raises: EffectUnknown."""
    if is_external(desk, call.tool_name):
        return await desk.services.external.call(desk.key, call.tool_call_id, call.tool_name, request.arguments)
    show, tasks = _show_output(desk, work, run_id, call), desk.services.tasks
    with _in_its_box(work, call, request):
        if tasks is not None and tasks.serves(request):
            return await tasks.run(CallKey(desk.key, run_id, call.tool_call_id), request, show)
        return await desk.services.toolbox.run(request, show)


@contextlib.contextmanager
def _in_its_box(work: TurnWork, call: Call, request: ToolRequest) -> Iterator[None]:
    work.used_box = True
    work.boxes[call.tool_call_id] = request.box
    try:
        yield
    finally:
        work.boxes.pop(call.tool_call_id, None)


async def _collect(desk: Desk, key: CallKey, request: ToolRequest) -> ToolOutcome | None:
    tasks = desk.services.tasks
    if tasks is not None and tasks.serves(request):
        return await tasks.collect(key, request)
    return await desk.services.toolbox.collect(request)


def _show_output(desk: Desk, work: TurnWork, run_id: RunId, call: Call) -> Callable[[str], None]:
    last_shown = desk.services.clock.mono() - OUTPUT_EVERY_S

    def show(text: str) -> None:
        nonlocal last_shown
        now = desk.services.clock.mono()
        if desk.work is work and now - last_shown >= OUTPUT_EVERY_S:
            last_shown = now
            desk.publish(ToolOutput(run_id, call.tool_call_id, text[-OUTPUT_LIMIT_CHARACTERS:]))

    return show


async def _check_again(
    desk: Desk, work: TurnWork, key: CallKey, action: do.RunCall, request: ToolRequest
) -> Clearance | Refused:
    """On whose word the call runs, or why it may not run after all."""
    verdict = await judge_now(desk, work, action.arguments, request)
    settlement = desk.services.questions.settlement(key) if action.by_person else None
    by_person = settlement is not None and permits(settlement, action.call.tool_name, action.arguments)
    match verdict:
        case Denied(reason=reason, rule=rule):
            return Refused(reason, RefusedBy.RULES, rule)
        case Allowed() if not by_person:
            return cleared_by_rules(verdict)
        case NeedsPerson(reason=reason, rule=rule) if not by_person:
            return Refused(PERMISSION_CHANGED.format(reason=reason), RefusedBy.RULES, rule)
        case Allowed(reason=reason, rule=rule) | NeedsPerson(reason=reason, rule=rule):
            # Also where a rule has come to allow it: what the person saw is what may run.
            assert settlement is not None
            return Clearance("person", reason, rule, settlement.pinned)
        case _:
            assert_never(verdict)


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
    text, shown_commit = await _with_memory_report(desk, work, call, outcome)
    final = ToolOutcome(outcome.status, text, outcome.overflow_path)
    journal = CallOutcome(status, text, outcome.overflow_path)
    await _record_result(desk, work, batch, call, final, journal, shown_commit)


async def _with_memory_report(desk: Desk, work: TurnWork, call: Call, outcome: ToolOutcome) -> tuple[str, str | None]:
    """Publish what a writing call committed to memory; findings join its result while the agent has the thread."""
    text = outcome.text
    if call.scheduling is not Scheduling.BARRIER or is_external(desk, call.tool_name):
        return text, None
    memory, agent_id = desk.services.memory, desk.key.agent_id
    before = memory.standing(agent_id)
    try:
        async with asyncio.timeout(desk.services.options.memory_import_limit_s):
            report = await memory.import_commits(agent_id, work.place.box, outcome.memory_head)
    except TimeoutError:
        return f"{text}\n\nYour memory could not be looked at for new commits in time; that is tried again.", None
    except Exception as error:  # noqa: BLE001 - said to the agent
        # Whatever befalls the memory, the call's own outcome is known and must be written down.
        return f"{text}\n\nYour memory could not be looked at for new commits: {error}", None
    if not report.moved:
        return (f"{text}\n\n{report.text}" if report.text else text), None
    # The agent knows what it wrote itself; only what others wrote is still news to it.
    knows_all = before == desk.live.state.shown_memory_commit
    return (f"{text}\n\n{report.text}" if report.text else text), report.standing if knows_all else None


async def _record_result(
    desk: Desk,
    work: TurnWork,
    batch: Batch,
    call: Call,
    outcome: ToolOutcome,
    journal: CallOutcome | None,
    shown_commit: str | None = None,
    decision: audit_rows.AuditRow | None = None,
) -> None:
    """Result and journal in one commit, beside which the turn goes on; clients see the result once it is on disk."""
    key, now, finished = desk.key, desk.services.clock.wall(), work.finished_calls
    message = records.result_message(
        desk.new_message_id(), batch.run_id, call.tool_call_id, outcome.status, outcome.text, now
    )
    result = records.CallResult(CallKey(key, batch.run_id, call.tool_call_id), message, journal)

    def write(connection: sqlite3.Connection) -> None:
        records.end_calls(connection, key, work.turn_id, (result,), now)
        if decision is not None:
            audit_rows.record(connection, decision)
        if shown_commit is not None:
            conversation_rows.set_shown_memory_commit(connection, key, shown_commit)

    def go_on() -> None:
        desk.live.transcript.add(message)
        finished.add(call.tool_call_id)
        if shown_commit is not None:
            desk.live.change_state(shown_memory_commit=shown_commit)
        desk.publish(ToolEnded(batch.run_id, batch.message_id, call.tool_call_id, outcome.status))
        desk.publish(ToolReturned(batch.run_id, message.message_id, call.tool_call_id, outcome.status, outcome.text))
        desk.feed(told.CallEnded(work.lease, call.tool_call_id))

    desk.work_of(work.lease)
    await desk.durably_beside(work, write, go_on)


def _executed_json(call: Call, arguments: JsonObject) -> str:
    if arguments == call.arguments:
        return call.arguments_json
    # As models and the other clients of the wire write it.
    return json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
