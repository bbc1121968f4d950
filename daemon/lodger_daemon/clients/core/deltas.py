"""Events of a turn as the payloads of `stream_delta` (PROTOCOL.md 5.5)."""

from lodger_daemon.clients.core.bodies import Body, Merge, TextFragment, event_body
from lodger_daemon.clients.core.times import iso
from lodger_daemon.clock import WallTime
from lodger_daemon.identity import ConversationKey
from lodger_daemon.turns.core.events import (
    AssistantText,
    InputEchoed,
    LoopFailed,
    NumberedEvent,
    ReasoningText,
    RetryAnnounced,
    RunFailed,
    RunStopped,
    StatusNote,
    ToolCallRequested,
    ToolEnded,
    ToolOutput,
    ToolReturned,
    ToolStarted,
    UsageReported,
)
from lodger_tools.json_value import Json, JsonObject


def delta_body(key: ConversationKey, delta: JsonObject, event_number: int | None = None) -> Body:
    return event_body("stream_delta", key, {"delta": delta}, event_number=event_number)


def assistant_text(numbered: NumberedEvent, event: AssistantText) -> Body:
    delta = _message(numbered, event.message_id, "assistant_message")
    delta.update(otid=event.otid, content=[{"type": "text", "text": event.text}], run_id=event.run_id)
    return _text_body(numbered, _sequenced(numbered, delta), event.otid, event.text)


def merge_text(key: ConversationKey, older: TextFragment, newer: TextFragment) -> Body:
    """Two consecutive fragments of one message as one frame, which bears the newer one's number."""
    text = older.text + newer.text
    delta: JsonObject = {**newer.delta, "id": older.delta["id"], "content": [{"type": "text", "text": text}]}
    return _fragment_body(key, newer.event_number, delta, newer.otid, text)


def reasoning_text(numbered: NumberedEvent, event: ReasoningText) -> Body:
    delta = _message(numbered, event.message_id, "reasoning_message")
    delta.update(otid=event.otid, reasoning=event.text, run_id=event.run_id)
    return delta_body(numbered.conversation, _sequenced(numbered, delta), numbered.number)


def tool_call_requested(numbered: NumberedEvent, event: ToolCallRequested) -> Body:
    delta = _message(numbered, event.message_id, "approval_request_message")
    call: JsonObject = {
        "tool_call_id": event.tool_call_id,
        "name": event.tool_name,
        "arguments": event.arguments_json,
    }
    delta.update(tool_call=call, run_id=event.run_id)
    return delta_body(numbered.conversation, _sequenced(numbered, delta), numbered.number)


def usage_reported(numbered: NumberedEvent, event: UsageReported) -> Body:
    total = event.prompt_tokens + event.completion_tokens
    delta = _message(numbered, event.message_id, "usage_statistics")
    delta.update(
        prompt_tokens=event.prompt_tokens,
        completion_tokens=event.completion_tokens,
        total_tokens=total,
        cached_input_tokens=event.cached_tokens,
        cache_write_tokens=0,
        reasoning_tokens=event.reasoning_tokens,
        context_tokens=total,
        run_id=event.run_id,
    )
    return delta_body(numbered.conversation, _sequenced(numbered, delta), numbered.number)


def run_stopped(numbered: NumberedEvent, event: RunStopped) -> Body:
    delta: JsonObject = {"message_type": "stop_reason", "stop_reason": event.stop_reason, "run_id": event.run_id}
    return delta_body(numbered.conversation, _sequenced(numbered, delta), numbered.number)


def run_failed(numbered: NumberedEvent, event: RunFailed) -> Body:
    delta = _message(numbered, f"message-error-{event.run_id}-{numbered.number}", "error_message")
    delta.update(
        message=event.message,
        detail=event.message,
        error_type=event.error_type,
        retryable=event.retryable,
        run_id=event.run_id,
    )
    return delta_body(numbered.conversation, _sequenced(numbered, delta), numbered.number)


def tool_started(numbered: NumberedEvent, event: ToolStarted) -> Body:
    delta: JsonObject = {
        "id": event.message_id,
        "date": iso(numbered.at),
        "message_type": "client_tool_start",
        "run_id": event.run_id,
        "tool_call_id": event.tool_call_id,
        "tool_name": event.tool_name,
        "tool_args": event.arguments_json,
    }
    return delta_body(numbered.conversation, delta, numbered.number)


def tool_ended(numbered: NumberedEvent, event: ToolEnded) -> Body:
    delta: JsonObject = {
        "id": event.message_id,
        "date": iso(numbered.at),
        "message_type": "client_tool_end",
        "run_id": event.run_id,
        "tool_call_id": event.tool_call_id,
        "status": event.status,
    }
    return delta_body(numbered.conversation, delta, numbered.number)


def tool_output(numbered: NumberedEvent, event: ToolOutput) -> Body:
    identifier = f"synthetic-tool-return-stream-{event.tool_call_id}"
    result: JsonObject = {
        "tool_call_id": event.tool_call_id,
        "status": "success",
        # As the lines of `stdout` joined: a last line that is complete has no empty one after it.
        "tool_return": event.text.removesuffix("\n"),
        "stdout": [*event.text.splitlines()],
    }
    return _tool_return(numbered, identifier, event.run_id, result)


def tool_returned(numbered: NumberedEvent, event: ToolReturned) -> Body:
    identifier = f"synthetic-tool-return-{event.message_id.removeprefix('message-')}"
    result: JsonObject = {"tool_call_id": event.tool_call_id, "status": event.status, "tool_return": event.text}
    return _tool_return(numbered, identifier, event.run_id, result)


def input_echoed(numbered: NumberedEvent, event: InputEchoed) -> Body:
    content: Json = [{"type": "text", "text": event.content}] if isinstance(event.content, str) else event.content
    delta: JsonObject = {
        "type": "message",
        "id": f"user-msg-{event.message_id.removeprefix('message-')}",
        "date": iso(numbered.at),
        "message_type": "user_message",
        "content": content,
        "otid": event.client_message_id,
    }
    if event.joined:
        delta["client_message_ids"] = [*event.joined]
    return delta_body(numbered.conversation, delta, numbered.number)


def retry_announced(numbered: NumberedEvent, event: RetryAnnounced) -> Body:
    delta = _lifecycle(numbered, "retry", event.run_id)
    delta.update(
        message=event.message,
        reason=event.reason,
        attempt=event.attempt,
        max_attempts=event.max_attempts,
        delay_ms=event.delay_ms,
    )
    return delta_body(numbered.conversation, delta, numbered.number)


def loop_failed(numbered: NumberedEvent, event: LoopFailed) -> Body:
    delta = _lifecycle(numbered, "loop_error", event.run_id)
    delta.update(message=event.message, stop_reason=event.stop_reason, is_terminal=event.terminal)
    if event.client_message_ids:
        delta["client_message_ids"] = [*event.client_message_ids]
    return delta_body(numbered.conversation, delta, numbered.number)


def status_note(numbered: NumberedEvent, event: StatusNote) -> Body:
    delta = _lifecycle(numbered, "status", event.run_id)
    delta.update(message=event.message, level=event.level)
    return delta_body(numbered.conversation, delta, numbered.number)


def local_delta(key: ConversationKey, message_type: str, at: WallTime, unique: str, fields: JsonObject) -> Body:
    """A lifecycle message of a client's own command, which is no event of the conversation."""
    delta: JsonObject = {"id": f"lifecycle-{unique}", "date": iso(at), "message_type": message_type, **fields}
    return delta_body(key, delta)


def _message(numbered: NumberedEvent, message_id: str, message_type: str) -> JsonObject:
    return {
        "id": message_id,
        "date": iso(numbered.at),
        "agent_id": numbered.conversation.agent_id,
        "conversation_id": numbered.conversation.conversation_id,
        "message_type": message_type,
    }


def _sequenced(numbered: NumberedEvent, delta: JsonObject) -> JsonObject:
    # `seq_id` must grow within a run and be the same for everyone who sees the event, now or on replay: the event's
    # own number does that without a counter to keep.
    delta["seq_id"] = numbered.number
    delta["type"] = "message"
    return delta


def _text_body(numbered: NumberedEvent, delta: JsonObject, otid: str, text: str) -> Body:
    return _fragment_body(numbered.conversation, numbered.number, delta, otid, text)


def _fragment_body(key: ConversationKey, number: int, delta: JsonObject, otid: str, text: str) -> Body:
    plain = delta_body(key, delta, number)
    return Body(plain.type, key, plain.head, Merge.TEXT, number, TextFragment(number, otid, delta, text))


def _lifecycle(numbered: NumberedEvent, message_type: str, run_id: str | None) -> JsonObject:
    # Every subscriber and every replay must see one id for one event; the number makes it unique in its conversation.
    delta: JsonObject = {
        "id": f"lifecycle-{numbered.conversation.conversation_id}-{numbered.number}",
        "date": iso(numbered.at),
        "message_type": message_type,
    }
    if run_id is not None:
        delta["run_id"] = run_id
    return delta


def _tool_return(numbered: NumberedEvent, identifier: str, run_id: str, result: JsonObject) -> Body:
    delta: JsonObject = {
        "type": "message",
        "message_type": "tool_return_message",
        "id": identifier,
        "date": iso(numbered.at),
        "run_id": run_id,
        "status": result["status"],
        "tool_call_id": result["tool_call_id"],
        "tool_return": result["tool_return"],
        "tool_returns": [result],
    }
    return delta_body(numbered.conversation, delta, numbered.number)
