"""Offers the model its own history beside the tools that clients bring along."""

from datetime import UTC, datetime
from functools import partial
from typing import Final

from lodger_daemon.backends.core.search_query import QueryRefused, clean
from lodger_daemon.backends.core.transcript import MessageKind, TranscriptMessage, calls_of, parts_of, text_of
from lodger_daemon.backends.local.search import HistorySearch, Page, Wanted
from lodger_daemon.clock import WallTime
from lodger_daemon.identity import AgentId, ConversationKey, MessageId
from lodger_daemon.store import message_rows
from lodger_daemon.store.database import Database
from lodger_daemon.store.errors import StoreError
from lodger_daemon.turns.contract import ExternalTools
from lodger_daemon.turns.records import from_row
from lodger_tools.catalogue.arguments import BadArguments
from lodger_tools.catalogue.history_search import (
    DESCRIPTION,
    HISTORY_TOOL,
    LIMIT,
    PARAMETERS,
    check_history_search,
)
from lodger_tools.json_value import JsonObject
from lodger_tools.toolbox_contract import Scheduling, ToolDescription, ToolOutcome

MESSAGE_LIMIT_CHARACTERS: Final = 20_000
_TOOL: Final = ToolDescription(HISTORY_TOOL, DESCRIPTION, PARAMETERS, Scheduling.PARALLEL)


class HistoryTool:
    """Implements `ExternalTools`: its own tool first, which no client can take the name of, then those of `others`."""

    def __init__(self, others: ExternalTools, history: HistorySearch, database: Database) -> None:
        self._others = others
        self._history = history
        self._database = database

    def tools(self, key: ConversationKey) -> tuple[ToolDescription, ...]:
        return (_TOOL, *(tool for tool in self._others.tools(key) if tool.name != HISTORY_TOOL))

    async def call(self, key: ConversationKey, tool_call_id: str, name: str, arguments: JsonObject) -> ToolOutcome:
        if name != HISTORY_TOOL:
            return await self._others.call(key, tool_call_id, name, arguments)
        try:
            check_history_search(arguments)
            if message_id := arguments.get("message_id"):
                return await self._read(key.agent_id, MessageId(clean(str(message_id))))
            return ToolOutcome("success", _in_words(await self._search(key.agent_id, arguments)))
        except (BadArguments, QueryRefused) as error:
            return ToolOutcome("error", str(error), refused=True)
        except StoreError as error:
            return ToolOutcome("error", f"The history could not be searched: {error}")

    async def _search(self, agent_id: AgentId, arguments: JsonObject) -> Page:
        limit, before = arguments.get("limit"), arguments.get("before")
        wanted = Wanted(
            query=str(arguments["query"]),
            agent_id=agent_id,
            hidden=True,
            limit=limit if isinstance(limit, int) else LIMIT,
            before=before if isinstance(before, int) else None,
        )
        return await self._history.search(wanted)

    async def _read(self, agent_id: AgentId, message_id: MessageId) -> ToolOutcome:
        row = await self._database.read(partial(message_rows.get_of_agent, agent_id=agent_id, message_id=message_id))
        if row is None:
            return ToolOutcome("error", f"None of your messages has the id {message_id[:200]}.", refused=True)
        message = from_row(row)
        text = _whole(message)
        if len(text) > MESSAGE_LIMIT_CHARACTERS:
            left_out = len(text) - MESSAGE_LIMIT_CHARACTERS
            text = f"{text[:MESSAGE_LIMIT_CHARACTERS]}\n[{left_out} characters more]"
        return ToolOutcome("success", f"{message.kind.value}, {_when(message.created_at)}:\n{text}")


def _in_words(page: Page) -> str:
    if not page.found:
        return "Nothing was found."
    lines = [
        f"{_when(one.created_at)} {one.kind} ({one.message_id} in {one.conversation_id}): {one.snippet}"
        for one in page.found
    ]
    if page.next_before is not None:
        lines.append(f"There is more: call again with before={page.next_before}.")
    return "\n".join(lines)


def _whole(message: TranscriptMessage) -> str:
    if message.kind is MessageKind.USER:
        parts = parts_of(message.content.get("content"))
        return "\n".join(text_of(part, "text") or f"[{text_of(part, 'type')}]" for part in parts)
    calls = (f"[calls {call.name} {call.arguments_json}]" for call in calls_of(message))
    return "\n".join([text_of(message.content, "text"), *calls]).strip()


def _when(at: WallTime) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
