"""The work around one model step: build it, shorten the conversation where it must be, write down how it went."""

import json
import sqlite3
from functools import partial
from typing import Final

from lodger_daemon.backends.core.compaction import Options
from lodger_daemon.backends.core.step_assembly import AssembledCall
from lodger_daemon.backends.core.transcript import MessageKind, TranscriptMessage
from lodger_daemon.backends.local.backend import BuiltRequest, NotCompacted
from lodger_daemon.identity import RunId
from lodger_daemon.models.contract import Usage
from lodger_daemon.store import conversation_rows, message_rows
from lodger_daemon.store.run_rows import RunStatus
from lodger_daemon.turns import records
from lodger_daemon.turns.core import actions as do
from lodger_daemon.turns.core import machine_events as told
from lodger_daemon.turns.core.events import RunStopped, StatusNote, UsageReported
from lodger_daemon.turns.core.stop_reasons import StopReason
from lodger_daemon.turns.desk import Desk, Step, TurnWork
from lodger_daemon.turns.services import finish_regardless
from lodger_daemon.turns.stored_messages import CALLS_PART, REASONING_PART, USAGE_PART, part_id
from lodger_tools.catalogue.arguments import parse_arguments
from lodger_tools.catalogue.person_questions import ANSWERS, ASK_TOOL, with_answers
from lodger_tools.json_value import JsonObject

COMPACTIONS_PER_STEP: Final = 2

COMPACTING_NOTE = "The conversation has grown long; its earlier part is being summarised."
COMPACTED_NOTE = "The conversation had grown long; its earlier part was replaced by a summary."
CUT_DOWN_NOTE = "To fit into the model's window, long results and old images are shown to it in part only."


async def build(desk: Desk, work: TurnWork, reminder: str | None) -> str | None:
    """Build the request, after a compaction if it would not fit; then it is measured again.

    Why it cannot be sent even so, in words for the person; None when the step is ready.
    """
    transcript = desk.live.transcript
    work.step = None
    built = await desk.backend.build(desk.standing(work), transcript, work.pending, reminder)
    for _ in range(COMPACTIONS_PER_STEP):
        if not await desk.backend.too_long(built, transcript) or await compact(desk, work) is not None:
            break
        built = await desk.backend.build(desk.standing(work), transcript, work.pending, reminder)
    too_large = await desk.backend.unsendable(built, transcript)
    if too_large is not None:
        return too_large
    work.step = new_step(desk, built)
    work.started_calls = set()
    work.finished_calls = set()
    work.reading = {}
    work.batch_recorded = False
    return None


def new_step(desk: Desk, built: BuiltRequest) -> Step:
    rng = desk.services.rng
    message_id = desk.new_message_id()
    return Step(
        run_id=desk.new_run_id(),
        built=built,
        message_id=message_id,
        calls_message_id=part_id(message_id, CALLS_PART),
        reasoning_message_id=part_id(message_id, REASONING_PART),
        otid=rng.uuid(),
        reasoning_otid=rng.uuid(),
    )


async def compact(desk: Desk, work: TurnWork | None, options: Options | None = None) -> NotCompacted | None:
    """None when the conversation got shorter. The prompt is compiled anew for the next request."""
    waiting = work.pending if work is not None else None

    def begins() -> None:
        desk.publish(StatusNote(COMPACTING_NOTE, "info"))

    spent = partial(desk.charge_summary, work)
    compaction = await desk.backend.compact(desk.standing(work), desk.live.transcript, waiting, options, begins, spent)
    if isinstance(compaction, NotCompacted):
        return compaction
    kept = [message.message_id for message in compaction.kept]
    turn_id = work.turn_id if work is not None else None
    key = desk.key

    def write(connection: sqlite3.Connection) -> None:
        message_rows.compact(connection, key, records.as_row(compaction.summary, turn_id), kept)
        conversation_rows.set_system_prompt(connection, key, None)

    async def commit() -> None:
        await desk.durably(write)
        desk.live.transcript.replace((compaction.summary, *compaction.kept))
        desk.live.change_state(system_prompt=None)

    await finish_regardless(commit())
    desk.publish(StatusNote(COMPACTED_NOTE if compaction.summary.content.get("hidden") else CUT_DOWN_NOTE, "info"))
    return None


async def compact_now(desk: Desk, action: do.CompactNow) -> None:
    not_compacted = await compact(desk, desk.work_of(action.lease))
    reason = not_compacted.reason if not_compacted is not None else ""
    desk.feed(told.Compacted(action.lease, not_compacted is None, reason))


async def admit(desk: Desk, work: TurnWork, step: Step) -> None:
    """The model has taken up the request: run, input and admission become one commit."""
    admission = admission_of(desk, work, step, step.run_id)
    key, now = desk.key, desk.services.clock.wall()
    await desk.durably(lambda connection: records.admit(connection, key, admission, now))
    admitted(desk, work, step, admission)


def admission_of(desk: Desk, work: TurnWork, step: Step | None, run_id: RunId) -> records.Admission:
    built = step.built if step is not None else None
    toolset = built.toolset if built is not None else None
    with_reminders = built.user_message if built is not None else None
    return records.Admission(
        turn_id=work.turn_id,
        run_id=run_id,
        user_message=(with_reminders or work.pending) if work.pending is not None else None,
        client_message_ids=work.client_message_ids,
        system_prompt=built.new_system_prompt if built is not None else None,
        toolset=toolset if toolset != desk.live.state.toolset else None,
        memory_shown=built.memory_shown if built is not None else False,
        memory_commit=built.memory_commit if built is not None else None,
    )


def admitted(desk: Desk, work: TurnWork, step: Step | None, admission: records.Admission) -> None:
    """The change of memory that follows the commit."""
    live = desk.live
    if admission.user_message is not None:
        live.transcript.add(admission.user_message)
        work.run_id = admission.run_id
    if admission.system_prompt is not None:
        live.change_state(system_prompt=admission.system_prompt)
    if admission.toolset is not None:
        live.change_state(toolset=admission.toolset)
    if admission.memory_shown:
        live.change_state(shown_memory_commit=admission.memory_commit)
    live.remember_run(admission.run_id, admission.client_message_ids)
    work.pending = None
    if step is not None:
        step.admitted = True


async def drop_run(desk: Desk, action: do.DropRun) -> None:
    work = desk.work_of(action.lease)
    step = work.step
    if step is None or step.run_id != action.run_id:
        return
    work.step = None
    if not step.admitted:
        return
    now, charge = desk.services.clock.wall(), desk.charge(work, step)
    end = records.StepEnd(step.run_id, RunStatus.FAILED, action.stop_reason, None, charge=charge)
    await finish_regardless(
        desk.durably(lambda connection: records.end_step(connection, desk.key, work.turn_id, end, now))
    )


def publish_step_end(desk: Desk, step: Step, stop_reason: StopReason) -> None:
    usage = step.assembly.usage
    if usage != Usage():
        message_id = part_id(step.message_id, USAGE_PART)
        desk.publish(
            UsageReported(step.run_id, message_id, usage.prompt, usage.completion, usage.cached, usage.reasoning)
        )
    desk.publish(RunStopped(step.run_id, stop_reason))


def assistant_message(desk: Desk, step: Step, with_calls: bool) -> TranscriptMessage | None:
    """What the transcript keeps of a step; None when it said nothing worth keeping."""
    calls = assembled_calls(step) if with_calls else ()
    content = step.assembly.content(calls, step.calls_message_id)
    if not calls and not content.get("text"):
        return None
    return TranscriptMessage(
        step.message_id,
        MessageKind.ASSISTANT,
        content,
        desk.services.clock.wall(),
        step.run_id,
        otid=step.otid,
    )


def assembled_calls(step: Step) -> tuple[AssembledCall, ...]:
    return step.assembly.calls(f"call-{step.run_id.removeprefix('run-')}", _is_json_object)


def _is_json_object(text: str) -> bool:
    return parse_object(text) is not None


def parse_object(text: str) -> JsonObject | None:
    try:
        value = parse_arguments(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def check_arguments(desk: Desk, tool_name: str, arguments_json: str) -> JsonObject | str:
    """The arguments, or what is wrong with them in words for the model."""
    if is_external(desk, tool_name):
        parsed = parse_object(arguments_json or "{}")
        return parsed if parsed is not None else "The arguments of this call are not a JSON object, so nothing ran."
    return desk.services.toolbox.check(tool_name, arguments_json)


def check_input(desk: Desk, tool_name: str, arguments: JsonObject) -> JsonObject | str:
    """As `check_arguments`, for an input that a person changed."""
    if tool_name != ASK_TOOL or is_external(desk, tool_name):
        return check_arguments(desk, tool_name, json.dumps(arguments))
    asked = {name: value for name, value in arguments.items() if name != ANSWERS}
    checked = check_arguments(desk, tool_name, json.dumps(asked))
    return checked if isinstance(checked, str) else with_answers(checked, arguments.get(ANSWERS))


def is_external(desk: Desk, tool_name: str) -> bool:
    """The machine's own tools win over a client's of the same name."""
    own = {tool.name for tool in desk.services.toolbox.tools()}
    return tool_name not in own and any(tool.name == tool_name for tool in desk.services.external.tools(desk.key))
