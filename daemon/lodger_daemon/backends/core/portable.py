"""An agent or a conversation as a file of JSON lines (docs/export-format.md): what it holds, and its lines."""

import hashlib
import json
from dataclasses import dataclass
from typing import Final

from lodger_daemon.backends.core.transcript import TranscriptMessage
from lodger_daemon.clock import WallTime
from lodger_daemon.identity import MessageId
from lodger_tools.json_value import Json, JsonObject

VERSION: Final = 1
CONVERSATIONS_LIMIT: Final = 10_000


@dataclass(frozen=True, slots=True)
class PortableAgent:
    id: str
    name: str
    description: str
    model: str
    system: str
    tags: tuple[str, ...]
    hidden: bool
    created_at: WallTime


@dataclass(frozen=True, slots=True)
class PortableConversation:
    id: str
    summary: str | None
    tags: tuple[str, ...]
    model: str | None
    hidden: bool
    archived_at: WallTime | None
    created_at: WallTime
    last_message_at: WallTime | None
    messages: tuple[TranscriptMessage, ...] = ()
    in_context: tuple[MessageId, ...] = ()


@dataclass(frozen=True, slots=True)
class Portable:
    """`agent` is absent in the file of a conversation alone."""

    agent: PortableAgent | None
    conversations: tuple[PortableConversation, ...]


class Writer:
    """Gives each line its bytes; the last one says what was before it."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._conversations = 0
        self._messages = 0

    def head(self, exported_at: WallTime) -> bytes:
        return self._line({"type": "lodger_export", "version": VERSION, "exported_at": exported_at})

    def agent(self, agent: PortableAgent) -> bytes:
        tags: list[Json] = [*agent.tags]
        return self._line(
            {
                "type": "agent",
                "id": agent.id,
                "name": agent.name,
                "description": agent.description,
                "model": agent.model,
                "system": agent.system,
                "tags": tags,
                "hidden": agent.hidden,
                "created_at": agent.created_at,
            }
        )

    def conversation(self, conversation: PortableConversation) -> bytes:
        """Its messages follow as lines of their own."""
        self._conversations += 1
        tags: list[Json] = [*conversation.tags]
        in_context: list[Json] = [*conversation.in_context]
        return self._line(
            {
                "type": "conversation",
                "id": conversation.id,
                "summary": conversation.summary,
                "tags": tags,
                "model": conversation.model,
                "hidden": conversation.hidden,
                "archived_at": conversation.archived_at,
                "created_at": conversation.created_at,
                "last_message_at": conversation.last_message_at,
                "in_context": in_context,
            }
        )

    def message(self, message: TranscriptMessage) -> bytes:
        self._messages += 1
        return self._line(
            {
                "type": "message",
                "id": message.message_id,
                "kind": message.kind.value,
                "content": message.content,
                "created_at": message.created_at,
                "run_id": message.run_id,
                "tool_call_id": message.tool_call_id,
                "otid": message.otid,
            }
        )

    def end(self) -> bytes:
        counts: JsonObject = {"conversations": self._conversations, "messages": self._messages}
        return _encoded({"type": "end", **counts, "sha256": self._digest.hexdigest()})

    def _line(self, fields: JsonObject) -> bytes:
        line = _encoded(fields)
        self._digest.update(line)
        return line


def _encoded(fields: JsonObject) -> bytes:
    # ASCII, so that half a surrogate pair, which models do send, needs no bytes of its own.
    return json.dumps(fields, separators=(",", ":"), allow_nan=False).encode() + b"\n"
