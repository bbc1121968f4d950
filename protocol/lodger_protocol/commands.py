"""What a client may ask and this daemon serves (PROTOCOL.md sections 4 and 7.3).

The fields are those whose types matter to a reader; everything else a client sends is kept as an extra field.
"""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, JsonValue

from lodger_protocol.envelope import Identifier, Runtime, WireModel
from lodger_protocol.fields import JsonMap, RequestId
from lodger_protocol.limits import EXTERNAL_TOOLS_LIMIT, MESSAGES_LIMIT
from lodger_protocol.memory_commands import MemoryCommand
from lodger_protocol.place_commands import PlaceCommand


class AppServerInfo(WireModel):
    type: Literal["app_server_info"]
    request_id: Identifier


class ClientInfo(WireModel):
    name: str = ""
    title: str | None = None
    version: str | None = None
    capabilities: JsonValue = None
    """What a client of ours can do beyond protocol v2, read by `read_capabilities`."""


class CreateAgentSpec(WireModel):
    body: JsonMap


class CreateConversationSpec(WireModel):
    body: JsonMap = Field(default_factory=dict)


class ExternalTool(WireModel):
    name: Identifier
    label: str | None = None
    description: str
    parameters: JsonMap
    timeout_ms: int | None = None


class ExternalToolGroup(WireModel):
    scope_id: str | None = None
    tools: list[ExternalTool] = Field(max_length=EXTERNAL_TOOLS_LIMIT)


class RuntimeStart(WireModel):
    type: Literal["runtime_start"]
    request_id: RequestId
    agent_id: Identifier | None = None
    create_agent: CreateAgentSpec | None = None
    conversation_id: Identifier | None = None
    create_conversation: CreateConversationSpec | None = None
    conversation_source_tags: list[str] = Field(default_factory=list)
    cwd: str | None = None
    """Absent leaves the folder as it is; null goes back to the boot folder (`"cwd" in model_fields_set`)."""
    mode: str | None = None
    client_info: ClientInfo | None = None
    recover_approvals: bool = True
    force_device_status: bool = True
    wait_for_replay: bool = False
    external_tools: list[ExternalToolGroup] = Field(default_factory=list, max_length=EXTERNAL_TOOLS_LIMIT)
    after_event: int | None = None


class Sync(WireModel):
    type: Literal["sync"]
    runtime: Runtime
    request_id: RequestId | None = None
    recover_approvals: bool = True
    force_device_status: bool = False
    after_event: int | None = None


class CreateMessage(WireModel):
    kind: Literal["create_message"]
    messages: list[JsonMap] = Field(max_length=MESSAGES_LIMIT)
    image_failure_mode: Literal["strict", "drop"] | None = None
    client_tool_allowlist: list[str] | None = None
    exclude_interactive_tools: bool | None = None
    delivery: Literal["tool_boundary", "turn_end"] | None = None
    max_steps: int | None = Field(default=None, ge=1)
    """An addition of ours: how many model steps the turn may take at most."""


class AllowDecision(WireModel):
    behavior: Literal["allow"]
    message: str | None = None
    updated_input: JsonMap | None = None
    selected_permission_suggestion_ids: list[str] | None = None


class DenyDecision(WireModel):
    behavior: Literal["deny"]
    message: str


class ApprovalResponse(WireModel):
    kind: Literal["approval_response"]
    request_id: Identifier
    decision: Annotated[AllowDecision | DenyDecision, Field(discriminator="behavior")] | None = None
    error: str | None = None


InputPayload: TypeAlias = Annotated[CreateMessage | ApprovalResponse, Field(discriminator="kind")]


class Input(WireModel):
    type: Literal["input"]
    runtime: Runtime
    request_id: Identifier | None = None
    payload: InputPayload


class LegacyMessage(WireModel):
    """The older shape of an input, without an acknowledgement (PROTOCOL.md 1.7)."""

    type: Literal["message"]
    agent_id: Identifier = Field(alias="agentId")
    camel_conversation_id: Identifier | None = Field(default=None, alias="conversationId")
    conversation_id: Identifier | None = None
    messages: list[JsonMap] = Field(max_length=MESSAGES_LIMIT)
    client_tool_allowlist: list[str] | None = Field(default=None, alias="clientToolAllowlist")


class AbortMessage(WireModel):
    type: Literal["abort_message"]
    runtime: Runtime
    request_id: RequestId | None = None
    run_id: str | None = None


class ToolScopeUpdate(WireModel):
    runtimes: list[Runtime] = Field(min_length=1, max_length=256)
    external_tools: list[ExternalToolGroup] = Field(max_length=EXTERNAL_TOOLS_LIMIT)


class RuntimeExternalToolsUpdate(WireModel):
    type: Literal["runtime_external_tools_update"]
    request_id: RequestId
    updates: list[ToolScopeUpdate] = Field(max_length=256)


class ToolResultPart(WireModel):
    type: str
    text: str | None = None
    data: str | None = None
    mime_type: str | None = Field(default=None, alias="mimeType")


class ToolResult(WireModel):
    content: list[ToolResultPart] = Field(max_length=1024)
    is_error: bool | None = None


class ExternalToolCallResponse(WireModel):
    type: Literal["external_tool_call_response"]
    request_id: RequestId
    result: ToolResult | None = None
    error: str | None = None


class DeviceStatePayload(WireModel):
    mode: str | None = None
    cwd: str | None = None
    agent_id: str | None = None
    conversation_id: str | None = None


class ChangeDeviceState(WireModel):
    type: Literal["change_device_state"]
    runtime: Runtime
    payload: DeviceStatePayload


class RemoveQueueItem(WireModel):
    type: Literal["remove_queue_item"]
    request_id: RequestId
    runtime: Runtime
    item_id: Identifier


class ResumeQueue(WireModel):
    type: Literal["resume_queue"]
    runtime: Runtime
    request_id: RequestId | None = None


class AckScope(WireModel):
    agent_id: str | None = None
    conversation_id: Identifier


class TurnFinishedAck(WireModel):
    type: Literal["turn_finished_ack"]
    runtime: AckScope
    idempotency_key: Identifier
    consumer_id: Annotated[str, Field(min_length=1, max_length=256)]


class ExecuteCommand(WireModel):
    type: Literal["execute_command"]
    command_id: Identifier
    request_id: RequestId
    runtime: Runtime
    args: str | None = None


class ConversationList(WireModel):
    type: Literal["conversation_list"]
    request_id: RequestId
    query: JsonMap | None = None


class ConversationRetrieve(WireModel):
    type: Literal["conversation_retrieve"]
    request_id: RequestId
    conversation_id: Identifier


class ConversationMessagesList(WireModel):
    type: Literal["conversation_messages_list"]
    request_id: RequestId
    conversation_id: Identifier
    query: JsonMap | None = None


class ConversationCreate(WireModel):
    type: Literal["conversation_create"]
    request_id: RequestId
    body: JsonMap


class ConversationUpdate(WireModel):
    type: Literal["conversation_update"]
    request_id: RequestId
    conversation_id: Identifier
    body: JsonMap


class ConversationFork(WireModel):
    type: Literal["conversation_fork"]
    request_id: RequestId
    conversation_id: Identifier
    body: JsonMap | None = None


class ConversationRecompile(WireModel):
    type: Literal["conversation_recompile"]
    request_id: RequestId
    conversation_id: Identifier
    body: JsonMap | None = None


class ConversationCompact(WireModel):
    type: Literal["conversation_compact"]
    request_id: RequestId
    conversation_id: Identifier
    body: JsonMap | None = None


ConversationChange: TypeAlias = (
    ConversationCreate | ConversationUpdate | ConversationFork | ConversationRecompile | ConversationCompact
)


class AgentList(WireModel):
    type: Literal["agent_list"]
    request_id: RequestId
    query: JsonMap | None = None


class AgentRetrieve(WireModel):
    type: Literal["agent_retrieve"]
    request_id: RequestId
    agent_id: Identifier


class AgentCreate(WireModel):
    type: Literal["agent_create"]
    request_id: RequestId
    body: JsonMap


class AgentUpdate(WireModel):
    type: Literal["agent_update"]
    request_id: RequestId
    agent_id: Identifier
    body: JsonMap


class AgentDelete(WireModel):
    type: Literal["agent_delete"]
    request_id: RequestId
    agent_id: Identifier


class ListModels(WireModel):
    type: Literal["list_models"]
    request_id: RequestId
    force: bool | None = None


class ModelChoice(WireModel):
    model_id: str | None = None
    model_handle: str | None = None
    reasoning_effort: str | None = None


class UpdateModel(WireModel):
    type: Literal["update_model"]
    request_id: RequestId
    runtime: Runtime
    payload: ModelChoice


class ListConnectProviders(WireModel):
    type: Literal["list_connect_providers"]
    request_id: RequestId
    target: Literal["local"]


class ConnectProvider(WireModel):
    type: Literal["connect_provider"]
    request_id: RequestId
    target: Literal["local"]
    provider_id: Identifier
    fields_: dict[str, str] = Field(alias="fields")


class DisconnectProvider(WireModel):
    type: Literal["disconnect_provider"]
    request_id: RequestId
    target: Literal["local"]
    provider_id: Identifier
    provider_name: str | None = None


class ChannelsList(WireModel):
    type: Literal["channels_list"]
    request_id: RequestId


class Ping(WireModel):
    """A heartbeat of a relay; a daemon ignores it here."""

    type: Literal["ping"]


Command: TypeAlias = (
    AppServerInfo
    | RuntimeStart
    | Sync
    | Input
    | LegacyMessage
    | AbortMessage
    | RuntimeExternalToolsUpdate
    | ExternalToolCallResponse
    | ChangeDeviceState
    | RemoveQueueItem
    | ResumeQueue
    | TurnFinishedAck
    | ExecuteCommand
    | ConversationList
    | ConversationRetrieve
    | ConversationMessagesList
    | ConversationChange
    | MemoryCommand
    | PlaceCommand
    | AgentList
    | AgentRetrieve
    | AgentCreate
    | AgentUpdate
    | AgentDelete
    | ListModels
    | UpdateModel
    | ListConnectProviders
    | ConnectProvider
    | DisconnectProvider
    | ChannelsList
    | Ping
)
