"""The part of an agent's transcript that a writer of memory is given to read. Blocking."""

import json
import sqlite3
from typing import Final

from lodger_daemon.identity import AgentId
from lodger_daemon.memory.core.writers import TranscriptPart
from lodger_daemon.store import message_rows
from lodger_daemon.store.message_rows import NumberedMessage

MOST_MESSAGES: Final = 2000
MOST_CHARS: Final = 1024 * 1024
"""Some 250,000 tokens: more than one pass of a model reads. What is left is the next part."""
_MESSAGE_CHARS: Final = 32 * 1024
"""Of one message: a picture or a large result says little in a summary of what was said."""


def part_after(connection: sqlite3.Connection, agent_id: AgentId, after: int) -> tuple[TranscriptPart, str] | None:
    """What follows message number `after`, as one JSON object a line; None when nothing does."""
    lines, through, left = list[str](), after, MOST_CHARS
    for found in message_rows.numbered_of_agent(connection, agent_id, after, MOST_MESSAGES):
        line = _line(found)
        if len(line) > left and lines:
            break
        lines.append(line)
        left -= len(line)
        through = found.number
    return (TranscriptPart(after, through), "".join(lines)) if lines else None


def _line(found: NumberedMessage) -> str:
    message = found.message
    shown = {
        "number": found.number,
        "conversation_id": found.key.conversation_id,
        "at": round(message.created_at, 3),
        "kind": message.kind.value,
        "content": message.content,
    }
    text = json.dumps(message.content, ensure_ascii=True)
    if len(text) > _MESSAGE_CHARS:
        shown["content"] = text[:_MESSAGE_CHARS]
        shown["cut"] = True
    return json.dumps(shown, ensure_ascii=True) + "\n"
