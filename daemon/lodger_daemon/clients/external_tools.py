"""Tools that clients bring along (PROTOCOL.md 5.8): who registered what, and the calls that wait for an answer."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from lodger_daemon.clients.core.bodies import encode, runtime_of
from lodger_daemon.identity import ConnectionId, ConversationKey
from lodger_daemon.randomness import Rng
from lodger_daemon.turns.core.own_questions import OwnQuestion
from lodger_protocol.commands import ExternalTool, ExternalToolCallResponse, ExternalToolGroup
from lodger_tools.json_value import JsonObject
from lodger_tools.toolbox_contract import Scheduling, ToolDescription, ToolOutcome

CALL_LIMIT_S: Final = 300.0
"""The protocol's limit for an answer (PROTOCOL.md 5.8)."""

RESULT_LIMIT_CHARS: Final = 30_000
"""As much as a tool of our own may tell the model; a client that sends more is cut short and the model told so."""

Send = Callable[[bytes], None]


def reserved_names(groups: Sequence[ExternalToolGroup]) -> str | None:
    """Why these cannot be registered: a tool named like a question of the daemon's own would have its answer acted on
    as if that had been asked. None when they can."""
    taken = sorted({tool.name for group in groups for tool in group.tools} & {*OwnQuestion})
    return (
        f"A tool cannot be called {' or '.join(taken)}: Lodger asks its own questions by that name" if taken else None
    )


@dataclass(frozen=True, slots=True)
class _Registration:
    connection: ConnectionId
    send: Send
    scope_id: str | None
    tool: ExternalTool


@dataclass(frozen=True, slots=True)
class _Pending:
    connection: ConnectionId
    answer: "asyncio.Future[ToolOutcome]"


class ExternalToolRegistry:
    """Implements `ExternalTools`. A tool lives as long as its connection; of two with one name the older is called."""

    def __init__(self, rng: Rng, call_limit_s: float = CALL_LIMIT_S) -> None:
        self._rng = rng
        self._call_limit_s = call_limit_s
        self._registered: dict[ConversationKey, list[_Registration]] = {}
        self._pending: dict[str, _Pending] = {}

    # -- for the turn machine --

    def tools(self, key: ConversationKey) -> tuple[ToolDescription, ...]:
        described: dict[str, ToolDescription] = {}
        for registration in self._registered.get(key, ()):
            tool = registration.tool
            if tool.name not in described:
                described[tool.name] = ToolDescription(
                    tool.name, tool.description, {**tool.parameters}, Scheduling.BARRIER
                )
        return tuple(described.values())

    async def call(self, key: ConversationKey, tool_call_id: str, name: str, arguments: JsonObject) -> ToolOutcome:
        registration = self._find(key, name)
        if registration is None:
            known = ", ".join(tool.name for tool in self.tools(key)) or "none"
            return ToolOutcome("error", f"Tool not found: {name}. Tools of connected clients: {known}", refused=True)
        request_id = f"external-tool-{self._rng.uuid()}"
        answer: asyncio.Future[ToolOutcome] = asyncio.get_running_loop().create_future()
        self._pending[request_id] = _Pending(registration.connection, answer)
        request: JsonObject = {
            "type": "external_tool_call_request",
            "request_id": request_id,
            "runtime": runtime_of(key),
            "tool_call_id": tool_call_id,
            "tool_name": name,
            "input": arguments,
        }
        if registration.scope_id is not None:
            request["scope_id"] = registration.scope_id
        limit_s = self._limit_of(registration.tool)
        try:
            registration.send(encode(request))
            async with asyncio.timeout(limit_s):
                return await answer
        except TimeoutError:
            return ToolOutcome("error", f"External tool execution error: no answer within {limit_s:g} seconds")
        finally:
            del self._pending[request_id]

    # -- for connections --

    def register(
        self, connection: ConnectionId, send: Send, key: ConversationKey, groups: Sequence[ExternalToolGroup]
    ) -> None:
        """Replace whatever this connection had registered for this conversation."""
        others = [one for one in self._registered.pop(key, ()) if one.connection != connection]
        own = [_Registration(connection, send, group.scope_id, tool) for group in groups for tool in group.tools]
        if others or own:
            self._registered[key] = others + own

    def settle(self, connection: ConnectionId, response: ExternalToolCallResponse) -> None:
        """Take an answer; one from a connection that was not asked, or that comes too late, changes nothing."""
        pending = self._pending.get(response.request_id)
        if pending is not None and pending.connection == connection and not pending.answer.done():
            pending.answer.set_result(_outcome(response))

    def connection_closed(self, connection: ConnectionId) -> None:
        """Its tools vanish, and calls that wait for it fail."""
        for key in list(self._registered):
            remaining = [one for one in self._registered[key] if one.connection != connection]
            if remaining:
                self._registered[key] = remaining
            else:
                del self._registered[key]
        for pending in self._pending.values():
            if pending.connection == connection and not pending.answer.done():
                closed = "External tool execution error: Listener connection closed"
                pending.answer.set_result(ToolOutcome("error", closed))

    def _find(self, key: ConversationKey, name: str) -> _Registration | None:
        return next((one for one in self._registered.get(key, ()) if one.tool.name == name), None)

    def _limit_of(self, tool: ExternalTool) -> float:
        if tool.timeout_ms is None or tool.timeout_ms <= 0:
            return self._call_limit_s
        return min(tool.timeout_ms / 1000, self._call_limit_s)


def _outcome(response: ExternalToolCallResponse) -> ToolOutcome:
    if response.result is None:
        reason = response.error or "the client answered with neither a result nor an error"
        return ToolOutcome("error", _shortened(f"External tool execution error: {reason}"))
    texts = [
        part.text if part.text is not None else f"[{part.type} {part.mime_type or ''}".rstrip() + "]"
        for part in response.result.content
    ]
    return ToolOutcome("error" if response.result.is_error else "success", _shortened("\n".join(texts)))


def _shortened(text: str) -> str:
    if len(text) <= RESULT_LIMIT_CHARS:
        return text
    return f"{text[:RESULT_LIMIT_CHARS]}\n[cut: the client sent {len(text)} characters]"
