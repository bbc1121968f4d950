"""How the contents of several messages become one (PROTOCOL.md 6.3)."""

from collections.abc import Iterable
from typing import Final

from lodger_daemon.turns.contract import InputMessage
from lodger_tools.json_value import Json

_SEPARATOR: Final = "\n"


def content_parts(content: Json) -> list[Json]:
    """Content as a list of parts: text becomes one text part."""
    if isinstance(content, list):
        return list(content)
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [] if content is None else [content]


def joined_parts(contents: Iterable[Json]) -> list[Json]:
    """All parts in order, with a text part of one newline between two contents. Empty contents leave no mark."""
    parts: list[Json] = []
    for content in contents:
        more = content_parts(content)
        if parts and more:
            parts.append({"type": "text", "text": _SEPARATOR})
        parts.extend(more)
    return parts


def submission_content(messages: tuple[InputMessage, ...]) -> Json:
    """What a queue shows: the content as sent, or the joined parts of several messages."""
    return messages[0].content if len(messages) == 1 else joined_parts(message.content for message in messages)
