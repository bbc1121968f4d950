"""From transcript to what a provider accepts: every call has exactly one result, right after it, in call order.

The transcript is never rewritten; damage (a missing, second or orphan result, an id used twice, broken arguments, a
name that is none) is repaired in this view only: a provider that refuses one message refuses the conversation for ever.
The view is kept as messages are added, so a long conversation costs no more per step than a short one, and what was
shown once is shown again in the same bytes.
"""

import json
import re
from collections.abc import Iterable
from typing import Final

from lodger_daemon.backends.core.transcript import MessageKind, TranscriptMessage, calls_of, list_of, parts_of, text_of
from lodger_daemon.identity import ToolCallId
from lodger_daemon.models.contract import AssistantMessage, ModelMessage, ToolCallPart, ToolMessage, UserMessage
from lodger_tools.json_value import JsonObject

NO_RESULT: Final = "The turn ended before this call had a result. Whether it had an effect is unknown."
NO_ARGUMENTS: Final = "{}"
BROKEN_ARGUMENTS: Final = "invalid_json"
"""The one field of the arguments a model is shown in place of those that it did not finish."""
NAME_LIMIT_CHARACTERS: Final = 64
"""What providers take as the name of a tool; a model may have called anything."""
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]")


class RequestView:
    """The messages after the system prompt. Grows by `add`; `messages` is cheap and changes nothing."""

    def __init__(self, transcript: Iterable[TranscriptMessage] = ()) -> None:
        self._settled: list[ModelMessage] = []
        self._open: AssistantMessage | None = None
        self._shown_ids: dict[ToolCallId, str] = {}
        """Of the open message: each call's own id, and the one it is shown under."""
        self._results: dict[str, ToolMessage] = {}
        self._used_ids: set[str] = set()
        for message in transcript:
            self.add(message)

    def add(self, message: TranscriptMessage) -> None:
        if message.kind is MessageKind.TOOL:
            self._add_result(message)
            return
        self._settle()
        if message.kind is MessageKind.ASSISTANT:
            self._open = self._render_assistant(message)
        else:
            self._settled.append(UserMessage(user_parts(message)))

    def messages(self) -> tuple[ModelMessage, ...]:
        return (*self._settled, *self._open_group())

    def _add_result(self, message: TranscriptMessage) -> None:
        if self._open is None or message.tool_call_id is None:
            return
        shown_id = self._shown_ids.get(message.tool_call_id)
        if shown_id is not None and shown_id not in self._results:
            self._results[shown_id] = render_result(message, shown_id)

    def _settle(self) -> None:
        self._settled.extend(self._open_group())
        self._open = None
        self._shown_ids = {}
        self._results = {}

    def _render_assistant(self, message: TranscriptMessage) -> AssistantMessage:
        content = message.content
        signature = content.get("signature")
        parts: list[ToolCallPart] = []
        for call in calls_of(message):
            # A provider refuses two calls with one id; only the first can have had a result.
            if call.tool_call_id in self._shown_ids:
                continue
            shown_id = self._shown_ids[call.tool_call_id] = self._unused_id(call.tool_call_id)
            parts.append(ToolCallPart(shown_id, shown_name(call.name), shown_arguments(call.arguments_json)))
        return AssistantMessage(
            text=text_of(content, "text"),
            tool_calls=tuple(parts),
            reasoning=text_of(content, "reasoning"),
            reasoning_signature=signature if isinstance(signature, str) else None,
        )

    def _unused_id(self, tool_call_id: str) -> str:
        """Some models count their calls anew in each step; providers want each id once in a conversation."""
        wanted = shown_id = tool_call_id or "call"
        number = 1
        while shown_id in self._used_ids:
            number += 1
            shown_id = f"{wanted}-{number}"
        self._used_ids.add(shown_id)
        return shown_id

    def _open_group(self) -> tuple[ModelMessage, ...]:
        if self._open is None:
            return ()
        if not self._open.text and not self._open.tool_calls:
            return ()
        results = (
            self._results.get(call.tool_call_id, ToolMessage(call.tool_call_id, NO_RESULT, is_error=True))
            for call in self._open.tool_calls
        )
        return (self._open, *results)


def shown_name(name: str) -> str:
    return _NOT_IN_NAMES.sub("_", name)[:NAME_LIMIT_CHARACTERS] or "unnamed"


def shown_arguments(arguments_json: str) -> str:
    """As the model wrote them, if they are a JSON object; else that text in an object, since some servers read them."""
    if not arguments_json.strip():
        return NO_ARGUMENTS
    try:
        is_object = isinstance(json.loads(arguments_json), dict)
    except (ValueError, RecursionError):
        is_object = False
    return arguments_json if is_object else json.dumps({BROKEN_ARGUMENTS: arguments_json})


def render_result(message: TranscriptMessage, tool_call_id: str) -> ToolMessage:
    is_error = message.content.get("status") != "success"
    return ToolMessage(tool_call_id, text_of(message.content, "text"), is_error)


def user_parts(message: TranscriptMessage) -> tuple[JsonObject, ...]:
    """Reminders first, then what the person wrote."""
    if message.kind is MessageKind.SUMMARY:
        return ({"type": "text", "text": text_of(message.content, "text")},)
    reminders: tuple[JsonObject, ...] = tuple(
        {"type": "text", "text": text_of(reminder, "text")}
        for reminder in list_of(message.content, "reminders")
        if isinstance(reminder, dict)
    )
    return (*reminders, *parts_of(message.content.get("content")))
