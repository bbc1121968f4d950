"""A transcript in memory: what was said, in the words of the store's content column.

`user`: `{"content": wire content, "client_message_ids": [...], "reminders": [{"kind", "text"}], "shown": {...}}`.
`assistant`: `{"text", "reasoning", "signature", "tool_calls": [{"id", "name", "arguments"}], "calls_message_id"}`.
`tool`: `{"status", "text"}`. `summary`: `{"text", "hidden": number of messages it stands for}`.
"""

from dataclasses import dataclass
from enum import StrEnum

from lodger_daemon.clock import WallTime
from lodger_daemon.identity import MessageId, RunId, ToolCallId
from lodger_tools.json_value import Json, JsonObject


class MessageKind(StrEnum):
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True)
class TranscriptMessage:
    message_id: MessageId
    kind: MessageKind
    content: JsonObject
    created_at: WallTime
    run_id: RunId | None = None
    tool_call_id: ToolCallId | None = None
    otid: str | None = None


@dataclass(frozen=True, slots=True)
class StoredCall:
    """A tool call as an assistant message keeps it."""

    tool_call_id: ToolCallId
    name: str
    arguments_json: str


def text_of(content: JsonObject, field: str) -> str:
    value = content.get(field)
    return value if isinstance(value, str) else ""


def list_of(content: JsonObject, field: str) -> list[Json]:
    value = content.get(field)
    return value if isinstance(value, list) else []


def calls_of(message: TranscriptMessage) -> tuple[StoredCall, ...]:
    if message.kind is not MessageKind.ASSISTANT:
        return ()
    return tuple(
        StoredCall(ToolCallId(text_of(call, "id")), text_of(call, "name"), text_of(call, "arguments"))
        for call in list_of(message.content, "tool_calls")
        if isinstance(call, dict)
    )


def parts_of(content: Json) -> tuple[JsonObject, ...]:
    """Wire content as parts: a string is one text part; what is no part is left out."""
    if isinstance(content, str):
        return ({"type": "text", "text": content},)
    if isinstance(content, list):
        return tuple(part for part in content if isinstance(part, dict))
    return ()
