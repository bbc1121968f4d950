"""The payloads of `stream_delta` (PROTOCOL.md 5.5): backend messages (`type: "message"`) and lifecycle messages."""

from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Discriminator, JsonValue, Tag

from lodger_protocol.envelope import WireModel


class Delta(WireModel):
    id: str | None = None
    date: str | None = None
    run_id: str | None = None


class AssistantMessage(Delta):
    """A fragment; fragments with one `otid` belong to one message."""

    message_type: Literal["assistant_message"]
    content: str | list[JsonValue]
    otid: str | None = None


class ReasoningMessage(Delta):
    message_type: Literal["reasoning_message"]
    reasoning: str
    otid: str | None = None


class ToolCall(WireModel):
    tool_call_id: str | None = None
    name: str | None = None
    arguments: str | None = None


class ApprovalRequestMessage(Delta):
    """The model called a tool that runs on this machine, whether or not anybody has to approve it."""

    message_type: Literal["approval_request_message"]
    tool_call: ToolCall | None = None
    tool_calls: list[ToolCall] | None = None


class ToolReturn(WireModel):
    tool_call_id: str
    status: Literal["success", "error"]
    tool_return: str


class ToolReturnMessage(Delta):
    """A snapshot of a running tool's output, or its result."""

    message_type: Literal["tool_return_message"]
    tool_returns: list[ToolReturn] | None = None
    status: Literal["success", "error"] | None = None
    tool_call_id: str | None = None
    tool_return: str | None = None


class UserMessage(Delta):
    message_type: Literal["user_message"]
    content: str | list[JsonValue]
    otid: str | None = None


class StopReasonMessage(Delta):
    """One per run; only `turn_finished` closes a turn."""

    message_type: Literal["stop_reason"]
    stop_reason: str


class UsageStatistics(Delta):
    message_type: Literal["usage_statistics"]
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ErrorMessage(Delta):
    message_type: Literal["error_message"]
    message: str
    error_type: str | None = None


class ClientToolStart(Delta):
    message_type: Literal["client_tool_start"]
    tool_call_id: str
    tool_name: str | None = None
    tool_args: str | None = None


class ClientToolEnd(Delta):
    message_type: Literal["client_tool_end"]
    tool_call_id: str
    status: Literal["success", "error"]


class SlashCommandStart(Delta):
    message_type: Literal["slash_command_start"]
    command_id: str
    input: str


class SlashCommandEnd(Delta):
    message_type: Literal["slash_command_end"]
    command_id: str
    input: str
    output: str
    success: bool


class StatusMessage(Delta):
    message_type: Literal["status"]
    message: str
    level: Literal["info", "success", "warning"]


class RetryMessage(Delta):
    message_type: Literal["retry"]
    message: str
    reason: str
    attempt: int
    max_attempts: int
    delay_ms: int | float


class LoopError(Delta):
    message_type: Literal["loop_error"]
    message: str
    stop_reason: str
    is_terminal: bool


class OtherDelta(Delta):
    """Any other message of a backend, passed through."""

    message_type: str


_KNOWN: Final = frozenset(
    {
        "assistant_message",
        "reasoning_message",
        "approval_request_message",
        "tool_return_message",
        "user_message",
        "stop_reason",
        "usage_statistics",
        "error_message",
        "client_tool_start",
        "client_tool_end",
        "slash_command_start",
        "slash_command_end",
        "status",
        "retry",
        "loop_error",
    }
)


def _tag(value: Any) -> str:
    found = value.get("message_type") if isinstance(value, dict) else getattr(value, "message_type", None)
    return found if isinstance(found, str) and found in _KNOWN else "other"


AnyDelta: TypeAlias = Annotated[
    Annotated[AssistantMessage, Tag("assistant_message")]
    | Annotated[ReasoningMessage, Tag("reasoning_message")]
    | Annotated[ApprovalRequestMessage, Tag("approval_request_message")]
    | Annotated[ToolReturnMessage, Tag("tool_return_message")]
    | Annotated[UserMessage, Tag("user_message")]
    | Annotated[StopReasonMessage, Tag("stop_reason")]
    | Annotated[UsageStatistics, Tag("usage_statistics")]
    | Annotated[ErrorMessage, Tag("error_message")]
    | Annotated[ClientToolStart, Tag("client_tool_start")]
    | Annotated[ClientToolEnd, Tag("client_tool_end")]
    | Annotated[SlashCommandStart, Tag("slash_command_start")]
    | Annotated[SlashCommandEnd, Tag("slash_command_end")]
    | Annotated[StatusMessage, Tag("status")]
    | Annotated[RetryMessage, Tag("retry")]
    | Annotated[LoopError, Tag("loop_error")]
    | Annotated[OtherDelta, Tag("other")],
    Discriminator(_tag),
]
