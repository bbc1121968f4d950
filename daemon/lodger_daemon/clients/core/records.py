"""Agents, conversations, models and providers as the wire shows them (PROTOCOL.md 4.3 and 4.8)."""

from lodger_daemon.clients.core.times import iso, iso_or_none
from lodger_daemon.models.contract import ModelInfo, ProviderStatus
from lodger_daemon.turns.contract import AgentRecord, ConversationRecord, NewAgent
from lodger_tools.json_value import Json, JsonObject


def agent_object(agent: AgentRecord, model: ModelInfo | None) -> JsonObject:
    provider, _, model_name = agent.model.partition("/")
    context_window = model.context_window if model is not None else 0
    max_tokens = model.max_output_tokens if model is not None else 0
    shown: JsonObject = {
        "id": agent.id,
        "name": agent.name,
        "description": agent.description or None,
        "system": agent.system,
        "tools": [],
        "tags": [*agent.tags],
        "model": agent.model,
        "model_settings": {
            "provider_type": provider,
            "context_window_limit": context_window,
            "max_tokens": max_tokens,
        },
        "message_ids": [],
        "in_context_message_ids": [],
        "created_at": iso(agent.created_at),
        "updated_at": iso(agent.updated_at),
        "last_run_completion": iso_or_none(agent.last_run_completion),
        "llm_config": {
            "model": model_name,
            "model_endpoint_type": provider,
            "model_endpoint": None,
            "context_window": context_window,
            "max_tokens": max_tokens,
        },
    }
    if agent.hidden:
        shown["hidden"] = True
    return shown


def conversation_object(conversation: ConversationRecord) -> JsonObject:
    shown: JsonObject = {
        "id": conversation.key.conversation_id,
        "agent_id": conversation.key.agent_id,
        "archived": conversation.archived_at is not None,
        "archived_at": iso_or_none(conversation.archived_at),
        "created_at": iso(conversation.created_at),
        "updated_at": iso(conversation.updated_at),
        "last_message_at": iso_or_none(conversation.last_message_at),
        "summary": conversation.summary,
        "in_context_message_ids": [*conversation.in_context_message_ids],
    }
    if conversation.tags:
        shown["tags"] = [*conversation.tags]
    if conversation.model is not None:
        shown["model"] = conversation.model
    return shown


def new_agent(body: JsonObject) -> NewAgent:
    """The parts of a `create_agent` body that mean something here."""
    tags = body.get("tags")
    return NewAgent(
        name=_text(body, "name") or "Lodger",
        description=_text(body, "description"),
        model=_text(body, "model") or None,
        system=_text(body, "system"),
        tags=tuple(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else (),
        hidden=body.get("hidden") is True,
    )


def model_entry(model: ModelInfo) -> JsonObject:
    entry: JsonObject = {
        "id": model.handle,
        "handle": model.handle,
        "label": model.label,
        "description": model.description,
        "updateArgs": {"context_window": model.context_window, "max_output_tokens": model.max_output_tokens},
        "source": model.source,
    }
    if model.is_default:
        entry["isDefault"] = True
    return entry


def provider_entry(provider: ProviderStatus) -> JsonObject:
    connected = provider.key_from != "none" or provider.reachable is True
    connection: JsonObject = {"is_connected": connected}
    if connected:
        connection.update(provider_name=provider.name, auth_type="api", base_url=provider.base_url)
    key_field: JsonObject = {"key": "apiKey", "label": "API key", "secret": True, "required": False}
    address_field: JsonObject = {"key": "baseUrl", "label": "Address", "placeholder": provider.base_url}
    return {
        "id": provider.name,
        "display_name": provider.name,
        "description": provider.detail,
        "provider_type": provider.name,
        "provider_name": provider.name,
        "provider_names": [provider.name],
        "requires_api_key": False,
        "fields": [key_field, address_field],
        "connected": connection,
        "connected_providers": [connection] if connected else [],
    }


def _text(body: JsonObject, name: str) -> str:
    value: Json = body.get(name)
    return value if isinstance(value, str) else ""
