"""A conversation's events as frames of protocol v2 (PROTOCOL.md section 5), before they are numbered."""

from typing import Final, assert_never

from lodger_daemon.clients.core import deltas
from lodger_daemon.clients.core.bodies import Body, Merge, event_body
from lodger_daemon.clients.core.times import iso, iso_or_none
from lodger_daemon.identity import ConversationKey
from lodger_daemon.turns.core.events import (
    AssistantText,
    CallRefused,
    DeviceStateChanged,
    FilePreview,
    InputEchoed,
    LoopFailed,
    LoopStatusChanged,
    MemorySynced,
    NumberedEvent,
    QuestionAsked,
    QuestionSettled,
    QueueBlocked,
    QueueChanged,
    QueuedItem,
    ReasoningText,
    RetryAnnounced,
    RunFailed,
    RunStopped,
    RunVoided,
    StatusNote,
    ToolCallRequested,
    ToolEnded,
    ToolOutput,
    ToolReturned,
    ToolStarted,
    TurnFinished,
    UsageReported,
)
from lodger_tools.json_value import Json, JsonObject

DEVICE_STATUS: Final = "update_device_status"


def render(numbered: NumberedEvent) -> Body | None:
    """The frame of one event. None for a changed device state: its frame is built from a snapshot when it is sent."""
    key, number = numbered.conversation, numbered.number
    match numbered.event:
        case AssistantText() as event:
            return deltas.assistant_text(numbered, event)
        case ReasoningText() as event:
            return deltas.reasoning_text(numbered, event)
        case LoopStatusChanged() as event:
            return loop_status(key, event, number)
        case DeviceStateChanged():
            return None
        case QueueChanged() as event:
            return queue_changed(key, event, number)
        case QueueBlocked(reason=reason):
            return event_body("lodger_queue_blocked", key, {"reason": reason}, event_number=number, beyond_v2=True)
        case InputEchoed() as event:
            return deltas.input_echoed(numbered, event)
        case ToolCallRequested() as event:
            return deltas.tool_call_requested(numbered, event)
        case ToolStarted() as event:
            return deltas.tool_started(numbered, event)
        case ToolOutput() as event:
            return deltas.tool_output(numbered, event)
        case ToolEnded() as event:
            return deltas.tool_ended(numbered, event)
        case ToolReturned() as event:
            return deltas.tool_returned(numbered, event)
        case UsageReported() as event:
            return deltas.usage_reported(numbered, event)
        case RunStopped() as event:
            return deltas.run_stopped(numbered, event)
        case RunVoided(run_id=run_id):
            return event_body("lodger_run_voided", key, {"run_id": run_id}, event_number=number, beyond_v2=True)
        case RunFailed() as event:
            return deltas.run_failed(numbered, event)
        case RetryAnnounced() as event:
            return deltas.retry_announced(numbered, event)
        case LoopFailed() as event:
            return deltas.loop_failed(numbered, event)
        case StatusNote() as event:
            return deltas.status_note(numbered, event)
        case QuestionAsked() as event:
            return control_request(key, event, number)
        case QuestionSettled() as event:
            settled: JsonObject = {"request_id": event.question_id, "outcome": event.outcome}
            return event_body("lodger_question_settled", key, settled, event_number=number, beyond_v2=True)
        case CallRefused() as event:
            refused: JsonObject = {"run_id": event.run_id, "tool_call_id": event.tool_call_id, "by": event.by}
            return event_body("lodger_call_refused", key, refused, event_number=number, beyond_v2=True)
        case TurnFinished() as event:
            return turn_finished(key, event, number)
        case MemorySynced() as event:
            synced: JsonObject = {"outcome": event.outcome, "head": event.head, "detail": event.detail}
            return event_body("lodger_memory_synced", key, synced, event_number=number, beyond_v2=True)
        case _:
            assert_never(numbered.event)


def loop_status(key: ConversationKey, event: LoopStatusChanged, number: int | None = None) -> Body:
    status: JsonObject = {
        "status": event.status,
        "active_run_ids": [] if event.run_id is None else [event.run_id],
    }
    if event.client_message_ids:
        status["client_message_ids_by_run_id"] = {run: [*ids] for run, ids in event.client_message_ids.items()}
    status["executing_tool_call_ids"] = [*event.executing]
    if event.retry_at is not None:
        status["retry_at"] = iso(event.retry_at)
    fields: JsonObject = {"loop_status": status}
    return event_body("update_loop_status", key, fields, merge=Merge.NEWEST, event_number=number)


def queue_changed(key: ConversationKey, event: QueueChanged, number: int | None = None) -> Body:
    removed: list[Json] = [
        {"client_message_id": removal.client_message_id, "disposition": removal.disposition}
        for removal in event.removed
    ]
    fields: JsonObject = {"queue": [_queue_item(item) for item in event.queue], "removed": removed}
    # A transition is told once and nowhere else, so it must reach even a slow reader (PROTOCOL.md 2.5).
    merge = Merge.NEVER if removed else Merge.NEWEST
    return event_body("update_queue", key, fields, merge=merge, event_number=number)


def resync(key: ConversationKey, point: int) -> Body:
    """The client's cursor leads nowhere: it reads the transcript anew; events with greater numbers than this follow."""
    return event_body("lodger_resync", key, {"after_event": point}, beyond_v2=True)


def subagents(key: ConversationKey) -> Body:
    """The children of a conversation: hidden conversations of their own, none of which is shown yet."""
    return event_body("update_subagent_state", key, {"subagents": []}, merge=Merge.NEWEST)


def turn_finished(key: ConversationKey, event: TurnFinished, number: int | None = None) -> Body:
    fields: JsonObject = {"turn_id": event.turn_id, "stop_reason": event.stop_reason}
    if event.run_id is not None:
        fields["run_id"] = event.run_id
    if event.error is not None:
        fields["error"] = event.error
    return event_body("turn_finished", key, fields, event_number=number)


def control_request(key: ConversationKey, event: QuestionAsked, number: int | None = None) -> Body:
    fields: JsonObject = {
        "request_id": event.question_id,
        "request": can_use_tool(event),
        "agent_id": key.agent_id,
        "conversation_id": key.conversation_id,
    }
    return event_body("control_request", key, fields, event_number=number)


def can_use_tool(event: QuestionAsked) -> JsonObject:
    """The `request` of a question. `reason` and `expires_at` are additions of ours that others ignore."""
    request: JsonObject = {
        "subtype": "can_use_tool",
        "tool_name": event.tool_name,
        "input": event.input,
        "tool_call_id": event.tool_call_id,
        "permission_suggestions": [{"id": item.id, "text": item.text} for item in event.suggestions],
        "blocked_path": None,
    }
    if event.previews:
        request["diffs"] = [_diff(preview) for preview in event.previews]
    if event.reason:
        request["reason"] = event.reason
    if event.expires_at is not None:
        request["expires_at"] = iso_or_none(event.expires_at)
    return request


def _diff(preview: FilePreview) -> JsonObject:
    if preview.hunks is None:
        return {"mode": "unpreviewable", "fileName": preview.file_name, "reason": preview.reason}
    return {"mode": "advanced", "fileName": preview.file_name, "hunks": [*preview.hunks]}


def _queue_item(item: QueuedItem) -> JsonObject:
    shown: JsonObject = {
        "id": item.id,
        "client_message_id": item.client_message_id,
        "kind": item.kind,
        "source": item.source,
        "content": item.content,
        "enqueued_at": iso(item.enqueued_at),
    }
    if item.paused:
        shown["paused"] = True
    return shown
