"""After a restart: what every unfinished turn was at, and how it goes on (BEHAVIOUR.md A12).

A reserved input that no model had taken up goes back to the head of the queue. A turn that was under way goes on
unattended: results that are missing are collected, or reported as unknown; nothing that was started runs again.
"""

import sqlite3
from dataclasses import dataclass

from lodger_daemon.backends.core.transcript import MessageKind, StoredCall, TranscriptMessage, calls_of, text_of
from lodger_daemon.clock import WallTime
from lodger_daemon.identity import CallKey, ConversationKey, MessageId, RunId, TurnId
from lodger_daemon.inbox.core.items import InboxItem, ItemStatus
from lodger_daemon.inbox.core.rules import batch_settings
from lodger_daemon.store import inbox_rows, journal_rows, question_rows, run_rows, setting_rows, turn_rows
from lodger_daemon.store.run_rows import RunStatus
from lodger_daemon.store.turn_rows import TurnRow
from lodger_daemon.turns.core import machine_events as told
from lodger_daemon.turns.core.calls import Batch, Call, CallProgress, Done, Refused, Running, Undecided
from lodger_daemon.turns.core.events import RetryAnnounced, RunStopped, RunVoided
from lodger_daemon.turns.core.states import Turn
from lodger_daemon.turns.core.stop_reasons import StopReason
from lodger_daemon.turns.core.words import STEP_CUT
from lodger_daemon.turns.desk import Desk, TurnWork
from lodger_daemon.turns.live import place_from_cause
from lodger_daemon.turns.question_work import progress_of_question
from lodger_daemon.turns.records import abort_mark
from lodger_daemon.turns.step_work import check_arguments
from lodger_tools.toolbox_contract import Scheduling


@dataclass(frozen=True, slots=True)
class LeftOver:
    """A turn that had reached the model and was not finished."""

    turn: TurnRow
    items: tuple[InboxItem, ...]
    steps: int
    """Model steps that were completed."""
    void: tuple[RunId, ...]
    """Runs that an earlier daemon's end cut: what was shown of them is in no transcript."""
    cut: RunId | None
    """The one of them that was under way just now."""
    aborted: bool
    """A person had aborted it; only its end is missing."""


def put_in_order(
    connection: sqlite3.Connection, now: WallTime, only: ConversationKey | None = None
) -> tuple[LeftOver, ...]:
    """In one transaction: release what was reserved, end what no model had seen, end runs that were cut."""
    cut = {run.turn_id: run.run_id for run in run_rows.all_active(connection) if only in (None, run.conversation)}
    for run_id in cut.values():
        run_rows.end(connection, run_id, RunStatus.INTERRUPTED, StopReason.ERROR, now, "the daemon stopped")
    left_over: list[LeftOver] = []
    for turn in turn_rows.all_active(connection):
        if only not in (None, turn.conversation):
            continue
        inbox_rows.release(connection, turn.turn_id)
        items = tuple(i for i in inbox_rows.of_turn(connection, turn.turn_id) if i.status is ItemStatus.ADMITTED)
        if not items:
            # Nobody has seen this turn do anything: its input starts another one.
            turn_rows.finish(connection, turn.turn_id, StopReason.CANCELLED, now)
            continue
        aborted = setting_rows.get(connection, abort_mark(turn.turn_id)) is True
        runs = tuple(r for r in run_rows.recent(connection, turn.conversation, 1000) if r.turn_id == turn.turn_id)
        steps = sum(run.status is RunStatus.COMPLETED for run in runs)
        void = tuple(run.run_id for run in runs if run.status is RunStatus.INTERRUPTED)
        left_over.append(LeftOver(turn, items, steps, void, cut.get(turn.turn_id), aborted))
    return tuple(left_over)


def resume(desk: Desk, left: LeftOver, work: TurnWork) -> tuple[told.TurnRecovered, tuple[Call, ...]]:
    """What the machine is told of this turn, and the calls whose outcome must be collected."""
    work.reserved = True
    work.run_id = _last_run(desk, left)
    work.settings = batch_settings(left.items)
    work.client_message_ids = tuple(m.client_message_id for item in left.items for m in item.messages)
    work.place = place_from_cause(left.turn.cause, desk.key.agent_id) or work.place
    batch = _last_batch(desk, work)
    turn = Turn(
        turn_id=left.turn.turn_id,
        can_ask=work.settings.can_answer_questions,
        ask_together=work.settings.ask_together,
        steps=max(1, left.steps),
        run_id=batch.run_id if batch is not None else None,
        max_steps=min(work.settings.max_steps or desk.services.options.max_steps, desk.services.options.max_steps),
    )
    collecting = tuple(c for c in batch.calls if isinstance(c.progress, Running)) if batch is not None else ()
    return told.TurnRecovered(work.lease, turn, batch), collecting


def _last_run(desk: Desk, left: LeftOver) -> RunId | None:
    """The run that the transcript ends with; a message of a person stands for the run that took it up."""
    for message in reversed(desk.live.transcript.in_context):
        if message.kind is MessageKind.USER:
            break
        if message.run_id is not None:
            return message.run_id
    return left.items[-1].run_id


def tell_what_is_void(desk: Desk, left: LeftOver) -> None:
    """A client that saw the beginning of an answer learns that it will be given anew, or not at all."""
    for run_id in left.void:
        desk.publish(RunVoided(run_id))
    if left.cut is None:
        return
    desk.publish(RunStopped(left.cut, StopReason.ERROR))
    if not left.aborted:
        desk.publish(RetryAnnounced(STEP_CUT, "restarted", 1, 1, 0, left.cut))


def _last_batch(desk: Desk, work: TurnWork) -> Batch | None:
    """The calls of the last step, with what is known of each; None when the model is to be asked next."""
    messages = desk.live.transcript.in_context
    start = next((i for i in range(len(messages) - 1, -1, -1) if messages[i].kind is not MessageKind.TOOL), None)
    if start is None or not (stored := calls_of(messages[start])):
        return None
    asking = messages[start]
    if asking.run_id is None:
        return None
    results = {message.tool_call_id for message in messages[start + 1 :]}
    calls = tuple(_call(desk, work, asking.run_id, call, call.tool_call_id in results) for call in stored)
    work.batch_recorded = True
    work.finished_calls = {call.tool_call_id for call in calls if isinstance(call.progress, Done)}
    return Batch(asking.run_id, _calls_message_id(asking), calls)


def _call(desk: Desk, work: TurnWork, run_id: RunId, stored: StoredCall, has_result: bool) -> Call:
    checked = check_arguments(desk, stored.name, stored.arguments_json)
    tools = {tool.name: tool for tool in desk.backend.tools(desk.standing(work))}
    tool = tools.get(stored.name)
    progress: CallProgress = Done()
    if not has_result:
        progress = _progress(desk, work, CallKey(desk.key, run_id, stored.tool_call_id), stored, checked)
    return Call(
        tool_call_id=stored.tool_call_id,
        tool_name=stored.name,
        arguments_json=stored.arguments_json,
        arguments=checked if isinstance(checked, dict) else None,
        scheduling=tool.scheduling if tool is not None else Scheduling.BARRIER,
        progress=progress,
    )


def _progress(desk: Desk, work: TurnWork, key: CallKey, stored: StoredCall, checked: object) -> CallProgress:
    database = desk.services.database
    entry = database.read_now(lambda connection: journal_rows.get(connection, key))
    if entry is not None:
        work.collecting[key.tool_call_id] = entry.arguments
        work.started_calls.add(key.tool_call_id)
        return Running(entry.arguments)
    if isinstance(checked, str):
        return Refused(checked)
    question = database.read_now(lambda connection: question_rows.latest_for(connection, key))
    settled = progress_of_question(question) if question is not None else None
    return settled or Undecided()


def _calls_message_id(message: TranscriptMessage) -> MessageId:
    return MessageId(text_of(message.content, "calls_message_id") or message.message_id)


def reserved_of(connection: sqlite3.Connection, turn_id: TurnId) -> tuple[InboxItem, ...]:
    return tuple(i for i in inbox_rows.of_turn(connection, turn_id) if i.status is ItemStatus.RESERVED)
