"""Reading agents, conversations and transcripts, and the little that is written of them."""

from collections.abc import Sequence
from typing import Final

from lodger_daemon.clients.connection import ClientConnection
from lodger_daemon.clients.core.records import agent_object, conversation_object, new_agent
from lodger_daemon.identity import DEFAULT_CONVERSATION, AgentId, ConversationId, ConversationKey
from lodger_daemon.turns.contract import AgentRecord, ConversationError
from lodger_daemon.turns.stored_messages import whole_id
from lodger_protocol.commands import (
    AgentCreate,
    AgentDelete,
    AgentList,
    AgentRetrieve,
    AgentUpdate,
    ConversationList,
    ConversationMessagesList,
    ConversationRetrieve,
)
from lodger_protocol.fields import JsonMap
from lodger_tools.json_value import Json, JsonObject

DEFAULT_PAGE: Final = 50
"""The protocol's (PROTOCOL.md 4.8)."""
PAGE_LIMIT: Final = 999
"""One less than the turn machine gives at once: the one more says whether there are more."""

Listing = (
    AgentCreate
    | AgentDelete
    | AgentList
    | AgentRetrieve
    | AgentUpdate
    | ConversationList
    | ConversationMessagesList
    | ConversationRetrieve
)


async def answer_listing(connection: ClientConnection, command: Listing) -> None:
    """Raises: ConversationError with words for the person; the caller makes the failed response of it."""
    payload = await _payload(connection, command)
    connection.respond(
        {"type": f"{command.type}_response", "request_id": command.request_id, "success": True, **payload}
    )


async def _payload(connection: ClientConnection, command: Listing) -> JsonObject:
    conversations = connection.services.conversations
    match command:
        case AgentList():
            agents = await conversations.list_agents()
            most = PAGE_LIMIT if (command.query or {}).get("limit") is None else _limit(command.query or {})
            return {"agents": [await _agent(connection, agent) for agent in agents[:most]]}
        case AgentRetrieve():
            agent = await conversations.get_agent(AgentId(command.agent_id))
            if agent is None:
                raise ConversationError(f"Agent {command.agent_id} not found")
            return {"agent": await _agent(connection, agent)}
        case AgentCreate():
            return {"agent": await _agent(connection, await conversations.create_agent(new_agent({**command.body})))}
        case AgentUpdate():
            changed = await conversations.update_agent(AgentId(command.agent_id), {**command.body})
            return {"agent": await _agent(connection, changed)}
        case AgentDelete():
            await conversations.delete_agent(AgentId(command.agent_id))
            return {"agent_id": command.agent_id}
        case ConversationList():
            query = command.query or {}
            agent_id = query.get("agent_id")
            found = await conversations.list_conversations(
                AgentId(agent_id) if isinstance(agent_id, str) else None,
                _limit(query),
                hidden=query.get("include_hidden") is True,
            )
            return {"conversations": [conversation_object(one) for one in found]}
        case ConversationRetrieve():
            record = await conversations.find_conversation(command.conversation_id)
            if record is None:
                raise ConversationError(f"Conversation {command.conversation_id} not found")
            return {"conversation": conversation_object(record)}
        case ConversationMessagesList():
            return await _messages(connection, command.conversation_id, command.query or {})


async def _agent(connection: ClientConnection, agent: AgentRecord) -> JsonObject:
    return agent_object(agent, await connection.services.models.describe(agent.model))


async def _messages(connection: ClientConnection, conversation_id: str, query: JsonMap) -> JsonObject:
    agent_id = query.get("agent_id")
    if isinstance(agent_id, str):
        key = ConversationKey(AgentId(agent_id), ConversationId(conversation_id))
    else:
        key = await find_key(connection, conversation_id, None, "query.agent_id")
    limit = _limit(query)
    messages = await connection.services.conversations.list_messages(
        key,
        limit=limit + 1,
        descending=query.get("order") != "asc",
        before=_text(query.get("before")),
        after=_text(query.get("after")),
    )
    page = messages[: _cut(messages, limit)]
    shown: list[Json] = [_stored(key, message) for message in page]
    ids = [message["id"] for message in page]
    oldest = None if not ids else ids[0] if query.get("order") == "asc" else ids[-1]
    return {"messages": shown, "next_before": oldest, "has_more": len(messages) > len(page)}


def _cut(messages: Sequence[JsonObject], limit: int) -> int:
    """Where a page of about `limit` ends: never inside an answer, for the next page starts at the next whole one."""
    end = min(limit, len(messages))
    while 0 < end < len(messages) and _whole(messages[end]) == _whole(messages[end - 1]):
        end += 1
    return end


def _whole(message: JsonObject) -> str:
    return whole_id(str(message["id"]))


ROLES: Final = {"user_message": "user", "assistant_message": "assistant"}


def _stored(key: ConversationKey, message: JsonObject) -> JsonObject:
    """A message as the wire lists it: with its conversation, its role, and what was said in parts."""
    shown: JsonObject = {**message, "agent_id": key.agent_id, "conversation_id": key.conversation_id}
    if (role := ROLES.get(str(message["message_type"]))) is not None:
        shown["role"] = role
    if isinstance(text := message.get("content"), str):
        shown["content"] = [{"type": "text", "text": text}]
    return shown


async def find_key(
    connection: ClientConnection, conversation_id: str, agent_id: Json, named_in: str
) -> ConversationKey:
    """The conversation a command names by its id, which `default` does only together with its agent's.

    Args:
        named_in: the field in which a client names the agent, for the words of a refusal.
    Raises: ConversationError.
    """
    if conversation_id == DEFAULT_CONVERSATION:
        if not isinstance(agent_id, str):
            raise ConversationError(f"The conversation `default` exists once per agent: name the agent in {named_in}")
        return ConversationKey(AgentId(agent_id), ConversationId(conversation_id))
    record = await connection.services.conversations.find_conversation(conversation_id)
    if record is None or (isinstance(agent_id, str) and record.key.agent_id != agent_id):
        raise ConversationError(f"Conversation {conversation_id} not found")
    return record.key


def _limit(query: JsonMap) -> int:
    wanted = query.get("limit")
    if not isinstance(wanted, int) or isinstance(wanted, bool):
        return DEFAULT_PAGE
    return min(max(wanted, 1), PAGE_LIMIT)


def _text(value: Json) -> str | None:
    return value if isinstance(value, str) else None
