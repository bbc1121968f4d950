"""The transcript as stored messages of the wire (PROTOCOL.md 4.8): one transcript message may become several."""

from datetime import UTC, datetime
from typing import Final

from lodger_daemon.backends.core.transcript import MessageKind, TranscriptMessage, calls_of, text_of
from lodger_daemon.identity import ClientMessageId, MessageId
from lodger_tools.json_value import Json, JsonObject

CALLS_PART: Final = "-c"
REASONING_PART: Final = "-r"
USAGE_PART: Final = "-u"
"""Figures of a step are shown under an id of their own, or a client would put them in place of its answer."""


def part_id(message_id: MessageId, part: str) -> MessageId:
    """The id clients see for a part of an assistant message that the wire shows as a message of its own."""
    return MessageId(f"{message_id}{part}")


def whole_id(shown_id: str) -> MessageId:
    """The id in the transcript of whatever clients see under this id."""
    for part in (CALLS_PART, REASONING_PART, USAGE_PART):
        shown_id = shown_id.removesuffix(part)
    return MessageId(shown_id)


def stored_messages(message: TranscriptMessage) -> tuple[JsonObject, ...]:
    """Reminders are left out: they were said to the model, not by the person."""
    match message.kind:
        case MessageKind.USER:
            return (_user(message),)
        case MessageKind.SUMMARY:
            return (_base(message, "summary_message") | {"summary": text_of(message.content, "text")},)
        case MessageKind.TOOL:
            return (_tool_return(message),)
        case MessageKind.ASSISTANT:
            return _assistant(message)


def joined_messages(message: TranscriptMessage) -> tuple[ClientMessageId, ...]:
    """All that a message of the person was made of, when that was more than one message; else nothing."""
    ids = message.content.get("client_message_ids")
    if not isinstance(ids, list) or len(ids) < 2:
        return ()
    return tuple(ClientMessageId(one) for one in ids if isinstance(one, str))


def _user(message: TranscriptMessage) -> JsonObject:
    shown = _base(message, "user_message") | {"content": message.content.get("content")}
    ids: list[Json] = [*joined_messages(message)]
    return shown | {"client_message_ids": ids} if ids else shown


def _assistant(message: TranscriptMessage) -> tuple[JsonObject, ...]:
    shown: list[JsonObject] = []
    if reasoning := text_of(message.content, "reasoning"):
        shown.append(
            _base(message, "reasoning_message")
            | {"id": part_id(message.message_id, REASONING_PART), "reasoning": reasoning}
        )
    if text := text_of(message.content, "text"):
        content: Json = [{"type": "text", "text": text}]
        shown.append(_base(message, "assistant_message") | {"content": content})
    calls: list[Json] = [
        {"tool_call_id": call.tool_call_id, "name": call.name, "arguments": call.arguments_json}
        for call in calls_of(message)
    ]
    if calls:
        calls_id = text_of(message.content, "calls_message_id") or message.message_id
        request = _base(message, "approval_request_message")
        shown.append(request | {"id": calls_id, "tool_call": calls[0], "tool_calls": calls})
    return tuple(shown)


def _tool_return(message: TranscriptMessage) -> JsonObject:
    status = "success" if message.content.get("status") == "success" else "error"
    text = text_of(message.content, "text")
    result: JsonObject = {"tool_call_id": message.tool_call_id, "status": status, "tool_return": text}
    returns: list[Json] = [dict(result)]
    return _base(message, "tool_return_message") | result | {"tool_returns": returns}


def _base(message: TranscriptMessage, message_type: str) -> JsonObject:
    date = datetime.fromtimestamp(message.created_at, UTC).isoformat(timespec="milliseconds")
    base: JsonObject = {
        "id": message.message_id,
        "date": date.replace("+00:00", "Z"),
        "message_type": message_type,
        "otid": message.otid,
    }
    if message.run_id is not None:
        base["run_id"] = message.run_id
    return base
