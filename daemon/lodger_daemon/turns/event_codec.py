"""Events as stored rows, and back.

Text fragments that follow one another in one message share a row; the row keeps each fragment's length, so that a
client resuming in the middle gets exactly the fragments it has not seen.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from itertools import accumulate, pairwise
from typing import Any, Final, cast

from lodger_daemon.clock import WallTime
from lodger_daemon.identity import ConversationKey
from lodger_daemon.turns.core import events as e
from lodger_daemon.turns.core.events import AssistantText, ConversationEvent, NumberedEvent, ReasoningText
from lodger_daemon.turns.core.stop_reasons import StopReason
from lodger_tools.json_value import Json, JsonObject

_CLASSES: Final[Mapping[str, type[Any]]] = {
    kind.__name__: kind
    for kind in (
        e.LoopStatusChanged,
        e.DeviceStateChanged,
        e.QueueChanged,
        e.QueueBlocked,
        e.InputEchoed,
        e.AssistantText,
        e.ReasoningText,
        e.ToolCallRequested,
        e.ToolStarted,
        e.ToolOutput,
        e.ToolEnded,
        e.ToolReturned,
        e.UsageReported,
        e.RunStopped,
        e.RunVoided,
        e.RunFailed,
        e.RetryAnnounced,
        e.LoopFailed,
        e.StatusNote,
        e.QuestionAsked,
        e.QuestionSettled,
        e.CallRefused,
        e.TurnFinished,
        e.MemorySynced,
    )
}

_LENGTHS: Final = "fragment_lengths"
_PLAIN: Final = (str, int, float, type(None))


@dataclass(frozen=True, slots=True)
class EventRow:
    """What one row of the store holds. `number` is the last event's number in it."""

    number: int
    at: WallTime
    kind: str
    payload: JsonObject


def encode(numbered: list[NumberedEvent]) -> list[EventRow]:
    """Rows for events in order."""
    rows: list[EventRow] = []
    fragments: list[NumberedEvent] = []
    for item in numbered:
        if fragments and not _continues(fragments[-1].event, item.event):
            rows.append(_encode_fragments(fragments))
            fragments = []
        if isinstance(item.event, AssistantText | ReasoningText):
            fragments.append(item)
        else:
            rows.append(EventRow(item.number, item.at, type(item.event).__name__, _plain_object(item.event)))
    if fragments:
        rows.append(_encode_fragments(fragments))
    return rows


def decode(key: ConversationKey, row: EventRow) -> tuple[NumberedEvent, ...]:
    """The events of a row; none for a kind this version does not know."""
    kind = _CLASSES.get(row.kind)
    if kind is None:
        return ()
    if kind in (AssistantText, ReasoningText):
        return _decode_fragments(key, row, kind)
    return (NumberedEvent(key, row.number, row.at, _build(kind, row.payload)),)


def _continues(earlier: ConversationEvent, later: ConversationEvent) -> bool:
    if not isinstance(earlier, AssistantText | ReasoningText) or type(earlier) is not type(later):
        return False
    assert isinstance(later, AssistantText | ReasoningText)
    return earlier.otid == later.otid and earlier.message_id == later.message_id


def _encode_fragments(fragments: list[NumberedEvent]) -> EventRow:
    texts = [item.event.text for item in fragments if isinstance(item.event, AssistantText | ReasoningText)]
    last = fragments[-1]
    payload = _plain_object(last.event)
    payload["text"] = "".join(texts)
    payload[_LENGTHS] = [len(text) for text in texts]
    return EventRow(last.number, last.at, type(last.event).__name__, payload)


def _decode_fragments(key: ConversationKey, row: EventRow, kind: type[Any]) -> tuple[NumberedEvent, ...]:
    lengths = cast("list[int]", row.payload[_LENGTHS])
    text = cast("str", row.payload["text"])
    common = {name: value for name, value in row.payload.items() if name not in (_LENGTHS, "text")}
    first = row.number - len(lengths) + 1
    ends = pairwise(accumulate(lengths, initial=0))
    return tuple(
        NumberedEvent(key, first + index, row.at, kind(**common, text=text[start:end]))
        for index, (start, end) in enumerate(ends)
    )


def _plain_object(value: object) -> JsonObject:
    assert is_dataclass(value)
    return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}


def _plain(value: object) -> Json:
    # First, because most values are such, and what follows takes ten times as long to say no.
    if isinstance(value, _PLAIN):
        return cast("Json", value)
    if is_dataclass(value) and not isinstance(value, type):
        return _plain_object(value)
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    return cast("Json", value)


def _build(kind: type[Any], payload: JsonObject) -> ConversationEvent:
    known = {field.name for field in fields(kind)}
    convert = _CONVERTERS.get(kind, {})
    values = {
        name: convert[name](value) if name in convert and value is not None else value
        for name, value in payload.items()
        if name in known
    }
    return cast("ConversationEvent", kind(**values))


def _tuple_of(make: Callable[[Any], object] | None = None) -> Callable[[Any], object]:
    return lambda values: tuple(make(value) if make else value for value in values)


def _made(kind: type[Any]) -> Callable[[Any], object]:
    return lambda value: _build(kind, value)


def _lists_to_tuples(value: Any) -> object:
    return {name: tuple(items) for name, items in value.items()}


_CONVERTERS: Final[Mapping[type[Any], Mapping[str, Callable[[Any], object]]]] = {
    e.LoopStatusChanged: {
        "status": e.LoopStatus,
        "executing": _tuple_of(),
        "client_message_ids": _lists_to_tuples,
    },
    e.QueueChanged: {"queue": _tuple_of(_made(e.QueuedItem)), "removed": _tuple_of(_made(e.QueueRemoval))},
    e.InputEchoed: {"joined": _tuple_of()},
    e.QueueBlocked: {"reason": e.BlockedBy},
    e.RunStopped: {"stop_reason": StopReason},
    e.LoopFailed: {"stop_reason": StopReason, "client_message_ids": _tuple_of()},
    e.TurnFinished: {"stop_reason": StopReason},
    e.FilePreview: {"hunks": _tuple_of()},
    e.QuestionAsked: {
        "suggestions": _tuple_of(_made(e.PermissionSuggestion)),
        "previews": _tuple_of(_made(e.FilePreview)),
    },
}
