"""What a daemon says unasked (PROTOCOL.md section 5)."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, JsonValue

from lodger_protocol.deltas import AnyDelta
from lodger_protocol.envelope import Event, Runtime, WireModel
from lodger_protocol.fields import JsonMap


class PermissionSuggestion(WireModel):
    id: str
    text: str


class CanUseTool(WireModel):
    subtype: Literal["can_use_tool"]
    tool_name: str
    input: JsonMap
    tool_call_id: str
    permission_suggestions: list[PermissionSuggestion]
    blocked_path: str | None
    diffs: list[JsonMap] | None = None


class PendingControlRequest(WireModel):
    request_id: str
    request: CanUseTool


class DeviceStatus(WireModel):
    current_connection_id: str | None
    connection_name: str | None
    is_online: bool
    is_processing: bool
    current_permission_mode: str
    current_working_directory: str | None
    git_context: JsonMap | None
    letta_code_version: str | None
    current_toolset: str | None
    current_toolset_preference: str
    current_loaded_tools: list[str]
    current_available_skills: list[JsonValue]
    background_processes: list[JsonValue]
    pending_control_requests: list[PendingControlRequest]
    experiments: list[JsonValue]
    memory_directory: str | None
    reflection_settings: JsonMap | None
    supported_commands: list[str]
    cwd_revision: int | None = None
    should_doctor: bool | None = None


class UpdateDeviceStatus(Event):
    type: Literal["update_device_status"]
    device_status: DeviceStatus


class LoopStatus(WireModel):
    status: str
    active_run_ids: list[str]
    executing_tool_call_ids: list[str]
    client_message_ids_by_run_id: dict[str, list[str]] | None = None


class UpdateLoopStatus(Event):
    type: Literal["update_loop_status"]
    loop_status: LoopStatus


class QueueItem(WireModel):
    id: str
    client_message_id: str
    kind: str
    source: str
    content: JsonValue
    enqueued_at: str


class QueueRemoval(WireModel):
    client_message_id: str
    disposition: Literal["dequeued", "cancelled"]


class UpdateQueue(Event):
    type: Literal["update_queue"]
    queue: list[QueueItem]
    removed: list[QueueRemoval]


class UpdateSubagentState(Event):
    type: Literal["update_subagent_state"]
    subagents: list[JsonValue]


class StreamDelta(Event):
    type: Literal["stream_delta"]
    delta: AnyDelta
    subagent_id: str | None = None


class TurnFinished(Event):
    type: Literal["turn_finished"]
    turn_id: str
    stop_reason: str
    run_id: str | None = None
    error: str | None = None


class ControlRequest(Event):
    type: Literal["control_request"]
    request_id: str
    request: CanUseTool
    agent_id: str | None = None
    conversation_id: str | None = None


class TeleportReady(WireModel):
    type: Literal["teleport_ready"]
    teleport_id: str
    runtime: Runtime
    success: bool


class FileOps(WireModel):
    type: Literal["file_ops"]
    path: str
    source: str


class ExternalToolCallRequest(WireModel):
    type: Literal["external_tool_call_request"]
    request_id: str
    tool_call_id: str
    tool_name: str
    input: JsonMap
    runtime: Runtime | None = None
    scope_id: str | None = None


ServerEvent: TypeAlias = Annotated[
    UpdateDeviceStatus
    | UpdateLoopStatus
    | UpdateQueue
    | UpdateSubagentState
    | StreamDelta
    | TurnFinished
    | ControlRequest
    | TeleportReady
    | FileOps
    | ExternalToolCallRequest,
    Field(discriminator="type"),
]
