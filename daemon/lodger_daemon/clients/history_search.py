"""`lodger_search`: Lodger's own command that looks through everything that was said on this machine."""

from typing import Final

from lodger_daemon.backends.core.search_query import QueryRefused, clean, span_of
from lodger_daemon.backends.core.transcript import MessageKind
from lodger_daemon.backends.local.search import SPOKEN, HistorySearch, Wanted
from lodger_daemon.clients.core.times import iso
from lodger_daemon.identity import AgentId, ConversationId
from lodger_daemon.store.search_index import Found
from lodger_daemon.turns.contract import ConversationError
from lodger_tools.json_value import Json, JsonObject

DEFAULT_LIMIT: Final = 20


class SearchCommand:
    """`query`, and optionally `agent_id`, `conversation_id`, `kinds`, `since`, `until`, `include_hidden`, `limit`,
    `before`; answers `results` (newest first) and `next_before`."""

    def __init__(self, history: HistorySearch) -> None:
        self._history = history

    async def answer(self, command: JsonObject) -> JsonObject:
        """Raises: ConversationError with words for the person, StoreError."""
        try:
            page = await self._history.search(_wanted(command))
        except QueryRefused as error:
            raise ConversationError(str(error)) from None
        results: list[Json] = [_result(found) for found in page.found]
        return {"results": results, "next_before": page.next_before}


def _wanted(command: JsonObject) -> Wanted:
    """Raises: ConversationError, QueryRefused."""
    agent_id, conversation_id = _text(command, "agent_id"), _text(command, "conversation_id")
    if conversation_id == "default" and agent_id is None:
        raise ConversationError("The conversation `default` exists once per agent: name the agent in agent_id")
    return Wanted(
        query=_text(command, "query") or "",
        agent_id=None if agent_id is None else AgentId(agent_id),
        conversation_id=None if conversation_id is None else ConversationId(conversation_id),
        kinds=_kinds(command.get("kinds")),
        span=span_of(_text(command, "since"), _text(command, "until")),
        hidden=command.get("include_hidden") is True,
        limit=_number(command, "limit") or DEFAULT_LIMIT,
        before=_number(command, "before"),
    )


def _kinds(value: Json) -> tuple[MessageKind, ...]:
    if value is None:
        return SPOKEN
    if isinstance(value, list) and value and all(one in list(MessageKind) for one in value):
        return tuple(MessageKind(str(one)) for one in value)
    raise ConversationError(f"kinds must be a list of {', '.join(MessageKind)}.")


def _text(command: JsonObject, name: str) -> str | None:
    value = command.get(name)
    # Half a character, which JSON can spell, is no text that anything could be compared with.
    if value is None or (isinstance(value, str) and value == clean(value)):
        return value
    raise ConversationError(f"{name} must be a text.")


def _number(command: JsonObject, name: str) -> int | None:
    value = command.get(name)
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**63:
        return value
    raise ConversationError(f"{name} must be a number above 0.")


def _result(found: Found) -> JsonObject:
    return {
        "message_id": found.message_id,
        "agent_id": found.agent_id,
        "conversation_id": found.conversation_id,
        "kind": found.kind,
        "date": iso(found.created_at),
        "snippet": found.snippet,
    }
