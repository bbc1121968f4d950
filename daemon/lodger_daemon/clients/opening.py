"""`runtime_start` and `sync`: a client turns to a conversation."""

from dataclasses import dataclass

from lodger_daemon.clients.connection import ClientConnection
from lodger_daemon.clients.core.bodies import runtime_of
from lodger_daemon.clients.core.records import agent_object, conversation_object, new_agent
from lodger_daemon.clients.external_tools import reserved_names
from lodger_daemon.clients.replaying import show_state
from lodger_daemon.identity import DEFAULT_CONVERSATION, AgentId, ConversationId, ConversationKey
from lodger_daemon.turns.contract import AgentRecord, ConversationError, StartedRuntime, StartRuntime
from lodger_protocol.capabilities import read_capabilities
from lodger_protocol.commands import RuntimeStart, Sync
from lodger_protocol.envelope import Runtime
from lodger_tools.json_value import JsonObject
from lodger_tools.permissions.core.modes import Mode


def key_of(runtime: Runtime) -> ConversationKey:
    return ConversationKey(AgentId(runtime.agent_id), ConversationId(runtime.conversation_id))


@dataclass(frozen=True, slots=True)
class _Refusal:
    reason: str
    agent: AgentRecord | None = None
    """The agent that was found before something else was not."""


async def runtime_start(connection: ClientConnection, command: RuntimeStart) -> None:
    if command.client_info is not None:
        info = command.client_info
        connection.announce(read_capabilities(info.capabilities), info.title or info.name)
    started = await _start(connection, command)
    if isinstance(started, _Refusal):
        agent = None if started.agent is None else await _agent(connection, started.agent)
        connection.respond(_response(command, None, agent, started.reason))
        return
    services = connection.services
    connection.watch(started.key)
    services.external_tools.register(
        connection.traits.id, connection.respond_bytes, started.key, command.external_tools
    )
    response = _response(command, started, await _agent(connection, started.agent), None)
    if not command.wait_for_replay:
        connection.respond(response)
    number = await show_state(
        connection, started.key, force_device=command.force_device_status, after_event=command.after_event
    )
    if command.wait_for_replay:
        connection.respond({**response, "lodger_last_event": number} if connection.capabilities.resume else response)


async def sync(connection: ClientConnection, command: Sync) -> None:
    key = key_of(command.runtime)
    number = await show_state(
        connection, key, force_device=command.force_device_status, after_event=command.after_event
    )
    if command.request_id is None:
        return
    response: JsonObject = {
        "type": "sync_response",
        "request_id": command.request_id,
        "runtime": runtime_of(key),
        "success": True,
    }
    if connection.capabilities.resume:
        response["lodger_last_event"] = number
    connection.respond(response)


async def _start(connection: ClientConnection, command: RuntimeStart) -> StartedRuntime | _Refusal:
    request = await _request(connection, command)
    if isinstance(request, _Refusal):
        return request
    try:
        return await connection.services.conversations.start_runtime(request)
    except ConversationError as error:
        if request.agent_id is not None and await connection.services.conversations.get_agent(request.agent_id) is None:
            return _Refusal(f"Agent {request.agent_id} not found")
        return _Refusal(str(error))


async def _request(connection: ClientConnection, command: RuntimeStart) -> StartRuntime | _Refusal:
    if (command.agent_id is None) == (command.create_agent is None):
        return _Refusal("runtime_start requires exactly one of agent_id or create_agent")
    if command.conversation_id is not None and command.create_conversation is not None:
        return _Refusal("runtime_start conversation_id cannot be combined with create_conversation")
    if command.mode is not None and command.mode not in list(Mode):
        return _Refusal(f"Unsupported permission mode: {command.mode}")
    if (fault := reserved_names(command.external_tools)) is not None:
        return _Refusal(fault)
    if command.agent_id is not None and command.conversation_id is not None:
        refusal = await _check_owner(connection, command.agent_id, command.conversation_id)
        if refusal is not None:
            return refusal
    return StartRuntime(
        agent_id=None if command.agent_id is None else AgentId(command.agent_id),
        new_agent=None if command.create_agent is None else new_agent(command.create_agent.body),
        conversation_id=command.conversation_id,
        mode=None if command.mode is None else Mode(command.mode),
        cwd=command.cwd,
        reset_cwd="cwd" in command.model_fields_set and command.cwd is None,
        conversation_tags=tuple(command.conversation_source_tags),
    )


async def _check_owner(connection: ClientConnection, agent_id: str, conversation_id: str) -> _Refusal | None:
    conversations = connection.services.conversations
    agent = await conversations.get_agent(AgentId(agent_id))
    if conversation_id == DEFAULT_CONVERSATION or agent is None:
        return None
    found = await conversations.find_conversation(conversation_id)
    if found is None:
        return _Refusal(f"Conversation {conversation_id} not found", agent)
    if found.key.agent_id != agent_id:
        return _Refusal(f"Conversation {conversation_id} belongs to {found.key.agent_id}, not {agent_id}", agent)
    return None


async def _agent(connection: ClientConnection, agent: AgentRecord) -> JsonObject:
    return agent_object(agent, await connection.services.models.describe(agent.model))


def _response(
    command: RuntimeStart, started: StartedRuntime | None, agent: JsonObject | None, error: str | None
) -> JsonObject:
    response: JsonObject = {
        "type": "runtime_start_response",
        "request_id": command.request_id,
        "success": started is not None,
        "runtime": None if started is None else runtime_of(started.key),
        "agent": agent,
        "conversation": None if started is None else conversation_object(started.conversation),
        "created": {
            "agent": started is not None and started.agent_created,
            "conversation": started is not None and started.conversation_created,
        },
    }
    if error is not None:
        response["error"] = error
    return response
