"""A frame before it has a number: its inner bytes, shared by every subscriber, and how it may be merged."""

from dataclasses import dataclass
from enum import Enum, auto

from pydantic_core import to_json

from lodger_daemon.identity import ConversationKey
from lodger_tools.json_value import Json, JsonObject


class Merge(Enum):
    """What may become of a frame that waits for a slow reader (PROTOCOL.md 2.5)."""

    NEVER = auto()
    NEWEST = auto()
    """A newer one of the same type and conversation takes its place."""
    TEXT = auto()
    """Consecutive fragments of one message may become one, for a client that asked for that."""


@dataclass(frozen=True, slots=True)
class TextFragment:
    """What two deltas of one message are merged by."""

    event_number: int
    otid: str
    delta: JsonObject
    text: str


@dataclass(frozen=True, slots=True)
class Body:
    """One event frame without its envelope's tail: `head` is an unclosed JSON object."""

    type: str
    key: ConversationKey
    head: bytes
    merge: Merge = Merge.NEVER
    event_number: int | None = None
    fragment: TextFragment | None = None
    beyond_v2: bool = False
    """Sent only to clients that know `lodger_event`."""


def encode(value: Json) -> bytes:
    """One JSON value as bytes. A lone surrogate, which a model may produce, becomes a replacement character."""
    try:
        return to_json(value)
    except (ValueError, UnicodeEncodeError):
        return to_json(_without_surrogates(value))


def _without_surrogates(value: Json) -> Json:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case list():
            return [_without_surrogates(item) for item in value]
        case dict():
            return {_clean(name): _without_surrogates(item) for name, item in value.items()}
        case _:
            return value


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def runtime_of(key: ConversationKey) -> JsonObject:
    return {"agent_id": key.agent_id, "conversation_id": key.conversation_id}


def event_body(
    frame_type: str,
    key: ConversationKey,
    fields: JsonObject,
    *,
    merge: Merge = Merge.NEVER,
    event_number: int | None = None,
    beyond_v2: bool = False,
) -> Body:
    """An enveloped frame of this type."""
    head = encode({"type": frame_type, **fields, "runtime": runtime_of(key)})[:-1]
    return Body(frame_type, key, head, merge, event_number, None, beyond_v2)


def finish(body: Body, event_seq: int, emitted_at: str, unique: str, with_number: bool) -> bytes:
    """Close the frame with its place in one connection's sequence. Texts given here must need no escaping."""
    number = f',"lodger_event":{body.event_number}' if with_number and body.event_number is not None else ""
    tail = (
        f',"event_seq":{event_seq},"emitted_at":"{emitted_at}",'
        f'"idempotency_key":"{body.type}:{event_seq}:{unique}"{number}}}'
    )
    return body.head + tail.encode()
