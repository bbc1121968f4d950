"""What happens in a conversation, as subscribers see it.

These are Lodger's own events, richer than protocol v2. `clients/` renders them to the wire; nothing here knows a frame.
Each is published on one conversation and gets that conversation's next event number (`NumberedEvent`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, TypeAlias

from lodger_daemon.clock import WallTime
from lodger_daemon.identity import (
    ClientMessageId,
    ConversationKey,
    MessageId,
    QuestionId,
    QueueItemId,
    RunId,
    ToolCallId,
    TurnId,
)
from lodger_daemon.turns.core.stop_reasons import StopReason
from lodger_tools.json_value import Json


class LoopStatus(StrEnum):
    """What a turn is doing (PROTOCOL.md 5.2). Values are words of the wire."""

    WAITING_ON_INPUT = "WAITING_ON_INPUT"
    SENDING_API_REQUEST = "SENDING_API_REQUEST"
    WAITING_FOR_API_RESPONSE = "WAITING_FOR_API_RESPONSE"
    RETRYING_API_REQUEST = "RETRYING_API_REQUEST"
    PROCESSING_API_RESPONSE = "PROCESSING_API_RESPONSE"
    WAITING_ON_APPROVAL = "WAITING_ON_APPROVAL"
    EXECUTING_CLIENT_SIDE_TOOL = "EXECUTING_CLIENT_SIDE_TOOL"
    EXECUTING_COMMAND = "EXECUTING_COMMAND"


@dataclass(frozen=True, slots=True)
class LoopStatusChanged:
    status: LoopStatus
    run_id: RunId | None = None
    executing: tuple[ToolCallId, ...] = ()
    client_message_ids: Mapping[RunId, tuple[ClientMessageId, ...]] | None = None
    """Which messages caused which runs: the last 32 runs of the conversation."""
    retry_at: WallTime | None = None
    """While a failed step waits to be tried again: until when."""


@dataclass(frozen=True, slots=True)
class DeviceStateChanged:
    """Mode, folder, processing or pending questions changed: a client should be shown the device state again."""


@dataclass(frozen=True, slots=True)
class QueuedItem:
    id: QueueItemId
    client_message_id: ClientMessageId
    kind: Literal["message", "task_notification", "cron_prompt"]
    source: Literal["user", "task_notification", "cron", "subagent", "system"]
    content: Json
    enqueued_at: WallTime
    paused: bool = False
    """Parked by an abort, until the person goes on."""


@dataclass(frozen=True, slots=True)
class QueueRemoval:
    client_message_id: ClientMessageId
    disposition: Literal["dequeued", "cancelled"]


@dataclass(frozen=True, slots=True)
class QueueChanged:
    queue: tuple[QueuedItem, ...]
    removed: tuple[QueueRemoval, ...] = ()


class BlockedBy(StrEnum):
    """Why what waits in the queue is not taken now."""

    INTERRUPTION = "interrupt_in_progress"
    QUESTION = "pending_approvals"
    COMMAND = "command_running"
    TURN = "streaming"


@dataclass(frozen=True, slots=True)
class QueueBlocked:
    """Told when it changes, and only while something waits; None: it is taken, or nothing waits any more."""

    reason: BlockedBy | None


@dataclass(frozen=True, slots=True)
class InputEchoed:
    """A queued message was taken into a turn. A message that started its turn directly is not echoed."""

    message_id: MessageId
    client_message_id: ClientMessageId
    content: Json
    joined: tuple[ClientMessageId, ...] = ()
    """The ids of all that became this one message, when it was made of several."""


@dataclass(frozen=True, slots=True)
class AssistantText:
    """A fragment of the answer; fragments with one `otid` belong to one message."""

    run_id: RunId
    message_id: MessageId
    otid: str
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningText:
    run_id: RunId
    message_id: MessageId
    otid: str
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallRequested:
    """The model called a tool; its arguments are complete."""

    run_id: RunId
    message_id: MessageId
    tool_call_id: ToolCallId
    tool_name: str
    arguments_json: str


@dataclass(frozen=True, slots=True)
class ToolStarted:
    run_id: RunId
    message_id: MessageId
    tool_call_id: ToolCallId
    tool_name: str
    arguments_json: str
    """As executed: a person may have changed what the model asked for."""


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """A whole snapshot of a running tool's output so far, at most every 100 ms and 30,000 characters."""

    run_id: RunId
    tool_call_id: ToolCallId
    text: str


@dataclass(frozen=True, slots=True)
class ToolEnded:
    run_id: RunId
    message_id: MessageId
    tool_call_id: ToolCallId
    status: Literal["success", "error"]


@dataclass(frozen=True, slots=True)
class ToolReturned:
    """The result as the model will see it."""

    run_id: RunId
    message_id: MessageId
    tool_call_id: ToolCallId
    status: Literal["success", "error"]
    text: str


@dataclass(frozen=True, slots=True)
class UsageReported:
    run_id: RunId
    message_id: MessageId
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    reasoning_tokens: int


@dataclass(frozen=True, slots=True)
class RunStopped:
    run_id: RunId
    stop_reason: StopReason


@dataclass(frozen=True, slots=True)
class RunVoided:
    """What was shown of this run is void: it joins no transcript, and its step is done again or given up."""

    run_id: RunId


@dataclass(frozen=True, slots=True)
class RunFailed:
    """The model's error as it reached us; a `RunStopped` follows."""

    run_id: RunId
    message: str
    error_type: str
    retryable: bool


@dataclass(frozen=True, slots=True)
class RetryAnnounced:
    message: str
    reason: str
    attempt: int
    max_attempts: int
    delay_ms: int
    run_id: RunId | None = None


@dataclass(frozen=True, slots=True)
class LoopFailed:
    message: str
    stop_reason: StopReason
    terminal: bool
    run_id: RunId | None = None
    client_message_ids: tuple[ClientMessageId, ...] = ()


@dataclass(frozen=True, slots=True)
class StatusNote:
    """A line for the person, such as `Interrupted` after an abort."""

    message: str
    level: Literal["info", "success", "warning"]
    run_id: RunId | None = None


@dataclass(frozen=True, slots=True)
class PermissionSuggestion:
    """A rule a person may save with their answer, shown exactly as it will match."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class FilePreview:
    """What a write or edit would change."""

    file_name: str
    hunks: tuple[Json, ...] | None
    """v2 `advanced` hunks, or None where no preview can be made."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class QuestionAsked:
    """A durable question is open: may this call run?"""

    question_id: QuestionId
    run_id: RunId
    tool_call_id: ToolCallId
    tool_name: str
    input: Json
    suggestions: tuple[PermissionSuggestion, ...] = ()
    previews: tuple[FilePreview, ...] = ()
    reason: str = ""
    """Why it is asked, in words for the person."""
    expires_at: WallTime | None = None


@dataclass(frozen=True, slots=True)
class QuestionSettled:
    question_id: QuestionId
    outcome: Literal["allowed", "denied", "expired", "withdrawn"]


@dataclass(frozen=True, slots=True)
class CallRefused:
    """A call will not run; its result follows and tells the model why."""

    run_id: RunId
    tool_call_id: ToolCallId
    by: Literal["arguments", "rules", "person", "nobody"]


@dataclass(frozen=True, slots=True)
class TurnFinished:
    turn_id: TurnId
    stop_reason: StopReason
    run_id: RunId | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class MemorySynced:
    """The outcome of a memory sync, a word of ARCHITECTURE.md section 6."""

    outcome: str
    head: str | None
    detail: str = ""


ConversationEvent: TypeAlias = (
    LoopStatusChanged
    | DeviceStateChanged
    | QueueChanged
    | QueueBlocked
    | InputEchoed
    | AssistantText
    | ReasoningText
    | ToolCallRequested
    | ToolStarted
    | ToolOutput
    | ToolEnded
    | ToolReturned
    | UsageReported
    | RunStopped
    | RunVoided
    | RunFailed
    | RetryAnnounced
    | LoopFailed
    | StatusNote
    | QuestionAsked
    | QuestionSettled
    | CallRefused
    | TurnFinished
    | MemorySynced
)


@dataclass(frozen=True, slots=True)
class NumberedEvent:
    """An event with its number: +1 for each event of that conversation, for ever, also across restarts.

    Numbers may skip forward after a crash; they never repeat. Read again later, snapshots of running output are left
    out, and a loop status names the messages behind its own run only.
    """

    conversation: ConversationKey
    number: int
    at: WallTime
    event: ConversationEvent
