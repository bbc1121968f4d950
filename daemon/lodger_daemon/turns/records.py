"""The transactions of a turn. Each is one commit; what it promises is said with it.

Order (ARCHITECTURE.md section 3): input accepted → reserved → run, user message and admission together → step's answer
and run's end → for each call: start, then result and finish together → turn's end. Neighbours may share a commit.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lodger_daemon.backends.core.transcript import MessageKind, TranscriptMessage
from lodger_daemon.clock import WallTime
from lodger_daemon.identity import CallKey, ClientMessageId, ConversationKey, MessageId, RunId, ToolCallId, TurnId
from lodger_daemon.inbox.core.items import Disposition, InboxItem, ItemKind, ItemStatus, NewItem, TurnSettings
from lodger_daemon.inbox.core.rules import Moment, next_batch
from lodger_daemon.spend.contract import Charge
from lodger_daemon.store import (
    agent_rows,
    conversation_rows,
    inbox_rows,
    journal_rows,
    message_rows,
    outbox_rows,
    run_rows,
    setting_rows,
    spend_rows,
    turn_rows,
)
from lodger_daemon.store.inbox_rows import AcceptResult, ItemAccepted
from lodger_daemon.store.journal_rows import CallOutcome
from lodger_daemon.store.message_rows import NewMessage, StoredMessage
from lodger_daemon.store.outbox_rows import OutboxRow
from lodger_daemon.store.run_rows import RunStatus
from lodger_daemon.turns.core.events import TurnFinished
from lodger_daemon.turns.core.stop_reasons import StopReason
from lodger_tools.json_value import JsonObject

ANNOUNCER: Final = "events"
"""The consumer of the outbox that stands for this conversation's events."""

TURN_FINISHED: Final = "turn_finished"


@dataclass(frozen=True, slots=True)
class TurnBegin:
    turn_id: TurnId
    cause: str


@dataclass(frozen=True, slots=True)
class Admission:
    """What becomes part of the conversation as the model takes up a request."""

    turn_id: TurnId
    run_id: RunId
    user_message: TranscriptMessage | None
    client_message_ids: tuple[ClientMessageId, ...]
    system_prompt: str | None
    """Newly compiled; None leaves the stored one."""
    toolset: tuple[str, ...] | None
    """None leaves the stored one."""
    memory_shown: bool
    memory_commit: str | None


@dataclass(frozen=True, slots=True)
class StepEnd:
    run_id: RunId
    status: RunStatus
    stop_reason: StopReason
    message: TranscriptMessage | None
    error: str | None = None
    charge: Charge | None = None
    """What it cost."""


@dataclass(frozen=True, slots=True)
class CallResult:
    call: CallKey
    message: TranscriptMessage
    outcome: CallOutcome | None
    """None when the call never started, so the journal knows nothing of it."""


@dataclass(frozen=True, slots=True)
class TurnEnd:
    turn_id: TurnId
    stop_reason: StopReason
    run_id: RunId | None
    error: str | None


def accept(
    connection: sqlite3.Connection,
    key: ConversationKey,
    item: NewItem,
    disposition: Disposition,
    begin: TurnBegin | None,
    now: WallTime,
) -> AcceptResult:
    """Store an input; with `begin`, also start its turn and reserve it, all in the one commit that acknowledges it."""
    result = inbox_rows.accept(connection, key, item, disposition, now)
    if begin is not None and isinstance(result, ItemAccepted):
        turn_rows.start(connection, key, begin.turn_id, begin.cause, now)
        inbox_rows.reserve(connection, key, (result.item.item_number,), begin.turn_id)
    return result


def reserve(
    connection: sqlite3.Connection,
    key: ConversationKey,
    moment: Moment,
    running: TurnSettings | None,
    turn_id: TurnId,
    begin: TurnBegin | None,
    now: WallTime,
) -> tuple[InboxItem, ...]:
    """Choose and take what waits in one change, so that nothing can be removed in between."""
    batch = next_batch(inbox_rows.waiting(connection, key), moment, running)
    if not batch:
        return ()
    if begin is not None:
        turn_rows.start(connection, key, turn_id, begin.cause, now)
    inbox_rows.reserve(connection, key, [item.item_number for item in batch], turn_id)
    return batch


def admit(connection: sqlite3.Connection, key: ConversationKey, admission: Admission, now: WallTime) -> None:
    """Before this a crash returns the input to the head of the queue; after it the input is in the transcript."""
    run_rows.start(connection, key, admission.run_id, admission.turn_id, now, admission.client_message_ids)
    if admission.user_message is not None:
        append(connection, key, admission.user_message, admission.turn_id)
        inbox_rows.admit(connection, admission.turn_id, admission.run_id)
        conversation_rows.touch(connection, key, now)
    if admission.system_prompt is not None:
        conversation_rows.set_system_prompt(connection, key, admission.system_prompt)
    if admission.toolset is not None:
        conversation_rows.set_toolset(connection, key, admission.toolset)
    if admission.memory_shown:
        conversation_rows.set_shown_memory_commit(connection, key, admission.memory_commit)


def end_step(
    connection: sqlite3.Connection, key: ConversationKey, turn_id: TurnId, end: StepEnd, now: WallTime
) -> None:
    if end.message is not None:
        append(connection, key, end.message, turn_id)
    run_rows.end(connection, end.run_id, end.status, end.stop_reason, now, end.error)
    if end.charge is not None:
        spend_rows.add(connection, end.charge)


def end_calls(
    connection: sqlite3.Connection,
    key: ConversationKey,
    turn_id: TurnId,
    results: Sequence[CallResult],
    now: WallTime,
) -> None:
    for result in results:
        if result.outcome is not None:
            journal_rows.finish(connection, result.call, result.outcome, now)
        append(connection, key, result.message, turn_id)


def end_turn(connection: sqlite3.Connection, key: ConversationKey, end: TurnEnd, now: WallTime) -> None:
    """The turn is over for good; that it is announced is owed from here on."""
    turn_rows.finish(connection, end.turn_id, end.stop_reason, now, end.run_id, end.error)
    announcement: JsonObject = {"stop_reason": end.stop_reason.value, "run_id": end.run_id, "error": end.error}
    outbox_rows.put(connection, end.turn_id, (ANNOUNCER,), TURN_FINISHED, announcement, now, key)
    setting_rows.remove(connection, abort_mark(end.turn_id))
    agent_rows.run_completed(connection, key.agent_id, now)


def give_back(connection: sqlite3.Connection, key: ConversationKey, turn_id: TurnId, parked: bool) -> None:
    """Put what no model took up back at the head of the queue, out of line if everything there is."""
    goes_on = any(
        item.kind is ItemKind.MESSAGE and item.status is ItemStatus.ACCEPTED
        for item in inbox_rows.waiting(connection, key)
    )
    inbox_rows.release(connection, turn_id)
    if parked and not goes_on:
        inbox_rows.park(connection, key)


def announced(connection: sqlite3.Connection, turn_id: TurnId, now: WallTime) -> None:
    """The event that ends this turn is stored."""
    outbox_rows.delivered(connection, turn_id, ANNOUNCER, now)


def unannounced(connection: sqlite3.Connection) -> tuple[tuple[ConversationKey, TurnFinished], ...]:
    """Ends of turns that an earlier daemon committed and could not tell of; some of them."""
    rows = outbox_rows.undelivered(connection, ANNOUNCER)
    return tuple((row.conversation, _finished(row)) for row in rows if row.conversation is not None)


def _finished(row: OutboxRow) -> TurnFinished:
    owed = row.payload if isinstance(row.payload, dict) else {}
    run_id, error = owed.get("run_id"), owed.get("error")
    return TurnFinished(
        turn_id=TurnId(row.delivery_id),
        stop_reason=StopReason(str(owed.get("stop_reason"))),
        run_id=RunId(run_id) if isinstance(run_id, str) else None,
        error=error if isinstance(error, str) else None,
    )


def mark_aborted(connection: sqlite3.Connection, turn_id: TurnId, now: WallTime) -> None:
    """So that a crash before the turn has unwound does not undo the person's abort."""
    setting_rows.put(connection, abort_mark(turn_id), True, now)


def abort_mark(turn_id: TurnId) -> str:
    return f"aborted:{turn_id}"


def append(
    connection: sqlite3.Connection, key: ConversationKey, message: TranscriptMessage, turn_id: TurnId | None
) -> None:
    message_rows.append(connection, key, as_row(message, turn_id))


def as_row(message: TranscriptMessage, turn_id: TurnId | None) -> NewMessage:
    return NewMessage(
        message_id=message.message_id,
        kind=message_rows.MessageKind(message.kind.value),
        content=message.content,
        created_at=message.created_at,
        otid=message.otid,
        run_id=message.run_id,
        turn_id=turn_id,
        tool_call_id=message.tool_call_id,
    )


def from_row(row: StoredMessage) -> TranscriptMessage:
    return TranscriptMessage(
        message_id=row.message_id,
        kind=MessageKind(row.kind.value),
        content=row.content if isinstance(row.content, dict) else {"text": str(row.content)},
        created_at=row.created_at,
        run_id=row.run_id,
        tool_call_id=row.tool_call_id,
        otid=row.otid,
    )


def result_message(
    message_id: MessageId, run_id: RunId, tool_call_id: ToolCallId, status: str, text: str, now: WallTime
) -> TranscriptMessage:
    content: JsonObject = {"status": status, "text": text}
    return TranscriptMessage(message_id, MessageKind.TOOL, content, now, run_id, tool_call_id)
