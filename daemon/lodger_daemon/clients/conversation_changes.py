"""Making and changing conversations by commands of their own (PROTOCOL.md 4.8)."""

from lodger_daemon.clients.connection import ClientConnection
from lodger_daemon.clients.core.records import conversation_object
from lodger_daemon.clients.listings import find_key
from lodger_daemon.identity import AgentId
from lodger_daemon.turns.contract import ConversationError
from lodger_protocol.commands import (
    ConversationChange,
    ConversationCompact,
    ConversationCreate,
    ConversationFork,
    ConversationRecompile,
    ConversationUpdate,
)
from lodger_protocol.fields import JsonMap
from lodger_tools.json_value import JsonObject


async def answer_change(connection: ClientConnection, command: ConversationChange) -> None:
    """Raises: ConversationError with words for the person; the caller makes the failed response of it."""
    payload = await _payload(connection, command)
    connection.respond(
        {"type": f"{command.type}_response", "request_id": command.request_id, "success": True, **payload}
    )


async def _payload(connection: ClientConnection, command: ConversationChange) -> JsonObject:
    conversations = connection.services.conversations
    if isinstance(command, ConversationCreate):
        agent_id = command.body.get("agent_id")
        if not isinstance(agent_id, str) or await conversations.get_agent(AgentId(agent_id)) is None:
            raise ConversationError(f"Agent {agent_id} not found" if agent_id else "Name the agent in body.agent_id")
        await _check_model(connection, command.body)
        return {
            "conversation": conversation_object(
                await conversations.create_conversation(AgentId(agent_id), {**command.body})
            )
        }
    body = command.body or {}
    key = await find_key(connection, command.conversation_id, body.get("agent_id"), "body.agent_id")
    match command:
        case ConversationUpdate():
            await _check_model(connection, body)
            return {"conversation": conversation_object(await conversations.update_conversation(key, {**body}))}
        case ConversationFork():
            last, hidden = body.get("message_id"), body.get("hidden") is True
            forked = await conversations.fork_conversation(key, last if isinstance(last, str) else None, hidden)
            return {"conversation": {"id": forked.conversation_id}}
        case ConversationRecompile():
            return {"result": await conversations.recompile(key)}
        case ConversationCompact():
            result = await conversations.compact(key, {**body})
            if not result.get("compacted"):
                raise ConversationError(str(result.get("reason")))
            return {
                "compaction": {
                    name: result.get(name) for name in ("num_messages_before", "num_messages_after", "summary")
                }
            }


async def _check_model(connection: ClientConnection, body: JsonMap) -> None:
    model = body.get("model")
    if isinstance(model, str) and model and await connection.services.models.describe(model) is None:
        raise ConversationError(f"There is no model {model[:200]} on this machine; list_models names those there are.")
