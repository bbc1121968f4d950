"""The answers to commands (PROTOCOL.md section 4)."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, JsonValue

from lodger_protocol.envelope import Runtime, WireModel
from lodger_protocol.fields import JsonMap


class Response(WireModel):
    request_id: str
    success: bool
    error: str | None = None


class AppServerInfoResponse(Response):
    type: Literal["app_server_info_response"]
    backend: Literal["local", "api"]
    letta_code_version: str
    protocol_version: int
    capabilities: dict[str, bool]


class Created(WireModel):
    agent: bool
    conversation: bool


class RuntimeStartResponse(Response):
    type: Literal["runtime_start_response"]
    runtime: Runtime | None
    agent: JsonMap | None
    conversation: JsonMap | None
    created: Created


class SyncResponse(Response):
    type: Literal["sync_response"]
    runtime: Runtime


class InputAccepted(WireModel):
    """Sent once the input is stored, and never before."""

    type: Literal["input_accepted"]
    request_id: str
    runtime: Runtime
    accepted: bool
    disposition: Literal["started", "queued"] | None = None
    error: str | None = None


class AbortMessageResponse(Response):
    type: Literal["abort_message_response"]
    runtime: Runtime
    aborted: bool


class RemoveQueueItemResponse(Response):
    type: Literal["remove_queue_item_response"]
    item_id: str


class ResumeQueueResponse(Response):
    type: Literal["resume_queue_response"]
    runtime: Runtime
    resumed: int


class ExecuteCommandResponse(Response):
    type: Literal["execute_command_response"]
    output: str


class RuntimeExternalToolsUpdateResponse(Response):
    type: Literal["runtime_external_tools_update_response"]


class ConversationListResponse(Response):
    type: Literal["conversation_list_response"]
    conversations: list[JsonValue]


class ConversationMessagesListResponse(Response):
    type: Literal["conversation_messages_list_response"]
    messages: list[JsonValue]
    next_before: str | None = None
    has_more: bool = False


class AgentListResponse(Response):
    type: Literal["agent_list_response"]
    agents: list[JsonValue]


class AgentRetrieveResponse(Response):
    type: Literal["agent_retrieve_response"]
    agent: JsonMap | None


class ListModelsResponse(Response):
    type: Literal["list_models_response"]
    entries: list[JsonValue]
    available_handles: list[str] | None = None


class UpdateModelResponse(Response):
    type: Literal["update_model_response"]
    applied_to: Literal["agent", "conversation"] | None = None


class ProvidersResponse(Response):
    type: Literal["list_connect_providers_response", "connect_provider_response", "disconnect_provider_response"]
    target: Literal["local"]
    providers: list[JsonValue]


ServedResponse: TypeAlias = Annotated[
    AppServerInfoResponse
    | RuntimeStartResponse
    | SyncResponse
    | InputAccepted
    | AbortMessageResponse
    | RemoveQueueItemResponse
    | ResumeQueueResponse
    | ExecuteCommandResponse
    | RuntimeExternalToolsUpdateResponse
    | ConversationListResponse
    | ConversationMessagesListResponse
    | AgentListResponse
    | AgentRetrieveResponse
    | ListModelsResponse
    | UpdateModelResponse
    | ProvidersResponse,
    Field(discriminator="type"),
]
