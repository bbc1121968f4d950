"""The door for clients: opens connections and sends each command to where it is answered."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Final, assert_never

from lodger_daemon.clients import answers, conversation_changes, device, inputs, listings, opening
from lodger_daemon.clients.answers import NOT_SERVED
from lodger_daemon.clients.connection import ClientConnection, ConnectionTraits, SendFrames
from lodger_daemon.clients.external_tools import reserved_names
from lodger_daemon.clients.info import app_server_info
from lodger_daemon.clients.services import Answering, ClientServices
from lodger_daemon.clients.sharing import SharedRenderer
from lodger_daemon.identity import ConnectionId, ConversationKey
from lodger_daemon.store.errors import StoreError
from lodger_daemon.turns.contract import ConversationError
from lodger_protocol.commands import (
    AbortMessage,
    AgentCreate,
    AgentDelete,
    AgentList,
    AgentRetrieve,
    AgentUpdate,
    AppServerInfo,
    ChangeDeviceState,
    ChannelsList,
    Command,
    ConnectProvider,
    ConversationChange,
    ConversationList,
    ConversationMessagesList,
    ConversationRetrieve,
    DisconnectProvider,
    ExecuteCommand,
    ExternalToolCallResponse,
    Input,
    LegacyMessage,
    ListConnectProviders,
    ListModels,
    Ping,
    RemoveQueueItem,
    ResumeQueue,
    RuntimeExternalToolsUpdate,
    RuntimeStart,
    Sync,
    TurnFinishedAck,
    UpdateModel,
)
from lodger_protocol.limits import COMMAND_LIMIT_BYTES
from lodger_protocol.memory_commands import MemoryCommand
from lodger_protocol.parsing import Malformed, UnknownCommand, parse_command
from lodger_protocol.place_commands import PlaceCommand
from lodger_protocol.unserved import failed_response
from lodger_tools.json_value import JsonObject

COMMAND_LIMIT_S: Final = 600.0
"""One command's work: as long as the slowest, a compaction by a model that runs on this machine's processor."""

_LOG: Final = logging.getLogger(__name__)

Work = Callable[[], Coroutine[None, None, None]]


class Router:
    """Makes a connection of each client. `aclose` ends all of them and waits until they have ended."""

    def __init__(self, services: ClientServices) -> None:
        self.services = services
        self._renderer = SharedRenderer()
        self._connections: set[ClientConnection] = set()
        self._opened = 0

    def open(
        self,
        send: SendFrames,
        label: str,
        *,
        local: bool = False,
        wire_name: str | None = None,
        device_id: str = "",
        cut: Callable[[], None] | None = None,
    ) -> ClientConnection:
        """A client has come.

        Args:
            send: Hands some frames to the transport, in order; an exception of it ends the connection.
            label: Names the client in logs.
            local: It came over this machine's own sockets, where provider keys may be set.
            wire_name: `current_connection_id` of its device status; the label if absent.
            device_id: The hub's id of the device it is on, for clients behind a hub.
            cut: Called once, when the daemon gives this client up; the transport should close.
        """
        self._opened += 1
        traits = ConnectionTraits(ConnectionId(f"client-{self._opened}"), label, local, wire_name or label, device_id)
        connection = ClientConnection(
            self.services, self._renderer, traits, self._handle, send, cut, self._connections.discard
        )
        self._connections.add(connection)
        return connection

    async def aclose(self) -> None:
        await asyncio.gather(*(connection.close() for connection in [*self._connections]))

    async def _handle(self, connection: ClientConnection, frame: bytes) -> None:
        match parse_command(frame, COMMAND_LIMIT_BYTES):
            case UnknownCommand(command_type, raw):
                answering = self.services.answered_elsewhere.get(command_type)
                if answering is None:
                    _respond_failed(connection, command_type, raw, f"{NOT_SERVED} ({command_type})")
                else:
                    await connection.start(partial(_answer_elsewhere, connection, command_type, raw, answering), None)
            case Malformed() as malformed:
                _refuse(connection, malformed)
            case command:
                await self._dispatch(connection, command)

    async def _dispatch(self, connection: ClientConnection, command: Command) -> None:
        match command:
            case Ping() | TurnFinishedAck():
                # The events of a turn stay readable by number, so a receipt has nothing to release here.
                pass
            case AppServerInfo():
                connection.respond(app_server_info(self.services.facts, command.request_id))
            case ChannelsList():
                response: JsonObject = {
                    "type": "channels_list_response",
                    "request_id": command.request_id,
                    "success": True,
                    "channels": [],
                }
                connection.respond(response)
            case ExternalToolCallResponse():
                self.services.external_tools.settle(connection.traits.id, command)
            case RuntimeExternalToolsUpdate():
                _update_external_tools(connection, command)
            case _:
                work, lane = _work(connection, command)
                await connection.start(partial(_guarded, connection, command, work), lane)


_Working = (
    RuntimeStart
    | Sync
    | Input
    | LegacyMessage
    | AbortMessage
    | ChangeDeviceState
    | RemoveQueueItem
    | ResumeQueue
    | ExecuteCommand
    | ListModels
    | UpdateModel
    | ListConnectProviders
    | ConnectProvider
    | DisconnectProvider
    | AgentCreate
    | AgentDelete
    | AgentList
    | AgentRetrieve
    | AgentUpdate
    | ConversationList
    | ConversationMessagesList
    | ConversationRetrieve
    | ConversationChange
    | MemoryCommand
    | PlaceCommand
)


def _work(connection: ClientConnection, command: _Working) -> tuple[Work, ConversationKey | None]:
    """What to run, and the conversation in whose order it runs: inputs and what changes their circumstances keep
    theirs, everything else may overtake."""
    if isinstance(command, MemoryCommand):
        return partial(answers.answer_memory, connection, command), None
    if isinstance(command, PlaceCommand):
        return partial(answers.answer_place, connection, command), None
    if isinstance(command, ConversationChange):
        return partial(conversation_changes.answer_change, connection, command), None
    match command:
        case Input():
            return partial(inputs.take_input, connection, command), opening.key_of(command.runtime)
        case LegacyMessage():
            return partial(inputs.take_legacy_message, connection, command), inputs.legacy_key(command)
        case AbortMessage():
            return partial(inputs.abort, connection, command), opening.key_of(command.runtime)
        case RemoveQueueItem():
            return partial(inputs.remove_queue_item, connection, command), opening.key_of(command.runtime)
        case ResumeQueue():
            return partial(inputs.resume_queue, connection, command), opening.key_of(command.runtime)
        case ChangeDeviceState():
            return partial(device.change_device_state, connection, command), opening.key_of(command.runtime)
        case UpdateModel():
            return partial(device.update_model, connection, command), opening.key_of(command.runtime)
        case RuntimeStart():
            return partial(opening.runtime_start, connection, command), None
        case Sync():
            return partial(opening.sync, connection, command), None
        case ExecuteCommand():
            return partial(device.execute_command, connection, command), None
        case ListModels():
            return partial(device.list_models, connection, command), None
        case ListConnectProviders() | ConnectProvider() | DisconnectProvider():
            return partial(device.providers, connection, command), None
        case (
            AgentCreate()
            | AgentDelete()
            | AgentList()
            | AgentRetrieve()
            | AgentUpdate()
            | ConversationList()
            | ConversationMessagesList()
            | ConversationRetrieve()
        ):
            return partial(listings.answer_listing, connection, command), None
        case _:
            assert_never(command)


async def _guarded(connection: ClientConnection, command: _Working, work: Work) -> None:
    await _guard(connection, command.type, work, partial(_failed, connection, command))


async def _answer_elsewhere(
    connection: ClientConnection, command_type: str, raw: Mapping[str, object], answering: Answering
) -> None:
    envelope: JsonObject = {"type": f"{command_type}_response", "request_id": raw.get("request_id")}  # type: ignore[dict-item]  # from a JSON parser

    async def work() -> None:
        response = await answering(dict(raw))  # type: ignore[arg-type]  # from a JSON parser
        connection.respond({**envelope, "success": True, **response})

    def failed(reason: str) -> None:
        connection.respond({**envelope, "success": False, "error": reason})

    await _guard(connection, command_type, work, failed)


async def _guard(connection: ClientConnection, command_type: str, work: Work, failed: Callable[[str], None]) -> None:
    """Run one command's work within its limit; whatever goes wrong, the client is told why."""
    try:
        async with asyncio.timeout(COMMAND_LIMIT_S):
            await work()
    except (ConversationError, StoreError) as error:
        # A full disk, above all, is told in its own words.
        failed(str(error))
    except TimeoutError:
        failed(f"No result within {COMMAND_LIMIT_S:g} seconds")
    except Exception:  # noqa: BLE001 - see below
        # One command's fault must not end the connection; the client is told, the log has the whole of it.
        _LOG.exception("command %s of %s failed", command_type, connection.traits.label)
        failed("The daemon failed at this command; its log says how.")


def _failed(connection: ClientConnection, command: _Working, reason: str) -> None:
    raw: Mapping[str, object] = command.model_dump(exclude_unset=True, by_alias=True, mode="json")
    match command:
        case Input():
            if command.request_id is not None:
                refusal: JsonObject = {
                    "type": "input_accepted",
                    "request_id": command.request_id,
                    "runtime": {**command.runtime.model_dump(mode="json")},
                    "accepted": False,
                    "error": reason,
                }
                connection.respond(refusal)
        case LegacyMessage():
            inputs.show_loop_error(connection, inputs.legacy_key(command), reason)
        case ChangeDeviceState():
            inputs.show_loop_error(connection, opening.key_of(command.runtime), reason)
        case _:
            _respond_failed(connection, command.type, raw, reason)


def _refuse(connection: ClientConnection, malformed: Malformed) -> None:
    if malformed.type is None:
        return
    if malformed.type == "input" and malformed.runtime is not None:
        inputs.refuse_malformed_input(connection, opening.key_of(malformed.runtime), malformed)
        return
    _respond_failed(connection, malformed.type, malformed.raw, f"Malformed {malformed.type}: {malformed.reason}")


def _respond_failed(connection: ClientConnection, command_type: str, raw: Mapping[str, object], reason: str) -> None:
    response = failed_response(command_type, raw, reason)  # type: ignore[arg-type]  # both come from a JSON parser
    if response is not None:
        connection.respond(response)


def _update_external_tools(connection: ClientConnection, command: RuntimeExternalToolsUpdate) -> None:
    keys = [opening.key_of(runtime) for update in command.updates for runtime in update.runtimes]
    twice = "A runtime is named twice in one update" if len(keys) != len(set(keys)) else None
    fault = twice or reserved_names([group for update in command.updates for group in update.external_tools])
    response: JsonObject = {
        "type": "runtime_external_tools_update_response",
        "request_id": command.request_id,
        "success": fault is None,
    }
    if fault is not None:
        response["error"] = fault
    else:
        for update in command.updates:
            for runtime in update.runtimes:
                connection.services.external_tools.register(
                    connection.traits.id, connection.respond_bytes, opening.key_of(runtime), update.external_tools
                )
    connection.respond(response)
