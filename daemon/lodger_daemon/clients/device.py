"""Commands about the machine's side of a conversation: its mode and folder, slash commands, models, providers."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from lodger_daemon.backends.core.compaction import Mode as CompactionMode
from lodger_daemon.clients.connection import ClientConnection
from lodger_daemon.clients.core.bodies import runtime_of
from lodger_daemon.clients.core.deltas import local_delta
from lodger_daemon.clients.core.records import model_entry, provider_entry
from lodger_daemon.clients.core.rendering import loop_status
from lodger_daemon.clients.inputs import show_loop_error
from lodger_daemon.clients.opening import key_of
from lodger_daemon.identity import AgentId, ConversationId, ConversationKey
from lodger_daemon.turns.contract import ConversationError
from lodger_daemon.turns.core.events import LoopStatus
from lodger_protocol.commands import (
    ChangeDeviceState,
    ConnectProvider,
    DisconnectProvider,
    ExecuteCommand,
    ListConnectProviders,
    ListModels,
    UpdateModel,
)
from lodger_protocol.unserved import failed_response
from lodger_tools.json_value import JsonObject
from lodger_tools.permissions.core.modes import Mode


async def change_device_state(connection: ClientConnection, command: ChangeDeviceState) -> None:
    """No response; a device status follows in any case, so that a client can roll back what it showed."""
    payload = command.payload
    key = ConversationKey(
        AgentId(payload.agent_id or command.runtime.agent_id),
        ConversationId(payload.conversation_id or command.runtime.conversation_id),
    )
    connection.watch(key)
    conversations = connection.services.conversations
    before = await conversations.snapshot(key)
    if not before.processing:
        connection.show(loop_status(key, replace(before.loop, status=LoopStatus.EXECUTING_COMMAND)))
    cwd = None if payload.cwd is None else _absolute(payload.cwd, before.cwd)
    error = await _change(connection, key, payload.mode, cwd)
    if error is not None:
        show_loop_error(connection, key, error)
    connection.show_device(key, force=True)
    if not before.processing:
        connection.show(loop_status(key, (await conversations.snapshot(key)).loop))


async def _change(connection: ClientConnection, key: ConversationKey, mode: str | None, cwd: str | None) -> str | None:
    """What kept the change from being made, in words for the person."""
    if mode is not None and mode not in list(Mode):
        return f"Unsupported permission mode: {mode}"
    if mode is None and cwd is None:
        return None
    try:
        await connection.services.conversations.change_state(key, None if mode is None else Mode(mode), cwd)
    except ConversationError as error:
        return str(error)
    return None


def _absolute(cwd: str, current: str) -> str:
    return cwd if cwd.startswith("/") else f"{current.rstrip('/')}/{cwd}"


async def execute_command(connection: ClientConnection, command: ExecuteCommand) -> None:
    key = key_of(command.runtime)
    connection.watch(key)
    work = _SLASH_COMMANDS.get(command.command_id)
    if work is None:
        _executed(connection, command, False, f"Unknown command: {command.command_id}")
        return
    typed = f"/{command.command_id} {command.args or ''}".rstrip()
    fields: JsonObject = {"command_id": command.command_id, "input": typed}
    _lifecycle(connection, key, "slash_command_start", fields)
    try:
        output, success = await work(connection, key, command.args or ""), True
    except (ConversationError, ValueError) as error:
        output, success = f"Failed: {error}", False
    _lifecycle(connection, key, "slash_command_end", {**fields, "output": output, "success": success})
    _executed(connection, command, success, output)


async def _compact(connection: ClientConnection, key: ConversationKey, args: str) -> str:
    """`/compact`, `/compact all`, `/compact sliding_window`; what follows is a wish about the summary."""
    mode, _, prompt = args.strip().partition(" ")
    known = mode in list(CompactionMode)
    wishes: JsonObject = {"mode": mode, "prompt": prompt} if known else {"prompt": args}
    result = await connection.services.conversations.compact(key, wishes)
    if not result.get("compacted"):
        raise ConversationError(str(result.get("reason")))
    before, after = result.get("num_messages_before"), result.get("num_messages_after")
    text = f"Compaction completed. Message buffer length reduced from {before} to {after}."
    summary = result.get("summary")
    return f"{text}\n\nSummary: {summary}" if summary else text


async def _reload(connection: ClientConnection, key: ConversationKey, args: str) -> str:
    output = await connection.services.facts.reload()
    connection.show_device(key, force=False)
    return output


_SLASH_COMMANDS: Final[dict[str, Callable[[ClientConnection, ConversationKey, str], Awaitable[str]]]] = {
    "compact": _compact,
    "reload": _reload,
}


def _executed(connection: ClientConnection, command: ExecuteCommand, success: bool, output: str) -> None:
    response: JsonObject = {
        "type": "execute_command_response",
        "request_id": command.request_id,
        "success": success,
        "output": output,
    }
    connection.respond(response)


def _lifecycle(connection: ClientConnection, key: ConversationKey, message_type: str, fields: JsonObject) -> None:
    services = connection.services
    connection.show(local_delta(key, message_type, services.clock.wall(), services.rng.uuid(), fields))


async def list_models(connection: ClientConnection, command: ListModels) -> None:
    models = await connection.services.models.list_models(refresh=command.force is True)
    response: JsonObject = {
        "type": "list_models_response",
        "request_id": command.request_id,
        "success": True,
        "entries": [model_entry(model) for model in models],
        "available_handles": [model.handle for model in models],
        "byok_provider_aliases": {},
    }
    connection.respond(response)


async def update_model(connection: ClientConnection, command: UpdateModel) -> None:
    key = key_of(command.runtime)
    connection.watch(key)
    services = connection.services
    handle = command.payload.model_handle or command.payload.model_id
    model = None if handle is None else await services.models.describe(handle)
    if handle is None or model is None:
        reason = "Model not found. Provide a valid model_id from list_models or a model_handle."
        _respond_failed(connection, command, reason)
        return
    try:
        applied_to = await services.conversations.set_model(key, handle)
    except ConversationError as error:
        _respond_failed(connection, command, str(error))
        return
    _lifecycle(connection, key, "status", {"message": f"Model set to {model.label}", "level": "info"})
    connection.show(loop_status(key, (await services.conversations.snapshot(key)).loop))
    connection.show_device(key, force=False)
    response: JsonObject = {
        "type": "update_model_response",
        "request_id": command.request_id,
        "success": True,
        "runtime": runtime_of(key),
        "applied_to": applied_to,
        "model_id": handle,
        "model_handle": handle,
        "model_settings": {
            "provider_type": model.provider,
            "context_window_limit": model.context_window,
            "max_tokens": model.max_output_tokens,
        },
    }
    connection.respond(response)


ProviderCommand = ListConnectProviders | ConnectProvider | DisconnectProvider

FIELD_NAMES: Final = {"apiKey": "api_key", "baseUrl": "base_url"}
"""Names of the official clients' forms, as `ModelGateway.connect` calls them."""


async def providers(connection: ClientConnection, command: ProviderCommand) -> None:
    models = connection.services.models
    changed: JsonObject = {}
    match command:
        case ListConnectProviders():
            pass
        case ConnectProvider() | DisconnectProvider() if not connection.traits.local:
            # A hub never handles provider keys (ARCHITECTURE.md section 5).
            _respond_failed(
                connection, command, "Provider keys are set on the machine itself: run `lodger connect` there."
            )
            return
        case ConnectProvider():
            fields = {FIELD_NAMES.get(name, name): value for name, value in command.fields_.items()}
            try:
                await models.connect(command.provider_id, fields)
            except ValueError as error:
                _respond_failed(connection, command, str(error))
                return
            changed["models_may_have_changed"] = True
        case DisconnectProvider():
            changed["models_may_have_changed"] = await models.disconnect(command.provider_id)
    response: JsonObject = {
        "type": f"{command.type}_response",
        "request_id": command.request_id,
        "success": True,
        "target": command.target,
        "providers": [provider_entry(provider) for provider in await models.providers()],
        **changed,
    }
    connection.respond(response)


def _respond_failed(connection: ClientConnection, command: ProviderCommand | UpdateModel, reason: str) -> None:
    failed = failed_response(command.type, command.model_dump(exclude_unset=True, by_alias=True), reason)
    if failed is not None:
        connection.respond(failed)
