"""From transcript to what a provider accepts: every call has exactly one result, right after it, in call order.

The transcript is never rewritten; damage (a missing, second or orphan result) is repaired in this view only. The view
is kept as messages are added, so a long conversation costs no more per step than a short one.
"""

from collections.abc import Iterable
from typing import Final

from lodger_daemon.backends.core.transcript import MessageKind, TranscriptMessage, calls_of, list_of, parts_of, text_of
from lodger_daemon.identity import ToolCallId
from lodger_daemon.models.contract import AssistantMessage, ModelMessage, ToolCallPart, ToolMessage, UserMessage
from lodger_tools.json_value import JsonObject

NO_RESULT: Final = "The turn ended before this call had a result. Whether it had an effect is unknown."
NO_ARGUMENTS: Final = "{}"


class RequestView:
    """The messages after the system prompt. Grows by `add`; `messages` is cheap and changes nothing."""

    def __init__(self, transcript: Iterable[TranscriptMessage] = ()) -> None:
        self._settled: list[ModelMessage] = []
        self._open: AssistantMessage | None = None
        self._results: dict[str, ToolMessage] = {}
        for message in transcript:
            self.add(message)

    def add(self, message: TranscriptMessage) -> None:
        if message.kind is MessageKind.TOOL:
            self._add_result(message)
            return
        self._settle()
        if message.kind is MessageKind.ASSISTANT:
            self._open = render_assistant(message)
        else:
            self._settled.append(UserMessage(user_parts(message)))

    def messages(self) -> tuple[ModelMessage, ...]:
        return (*self._settled, *self._open_group())

    def _add_result(self, message: TranscriptMessage) -> None:
        if self._open is None or message.tool_call_id is None:
            return
        wanted = {call.tool_call_id for call in self._open.tool_calls}
        if message.tool_call_id not in wanted or message.tool_call_id in self._results:
            return
        self._results[message.tool_call_id] = render_result(message, message.tool_call_id)

    def _settle(self) -> None:
        self._settled.extend(self._open_group())
        self._open = None
        self._results = {}

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


def render_assistant(message: TranscriptMessage) -> AssistantMessage:
    content = message.content
    signature = content.get("signature")
    parts: dict[str, ToolCallPart] = {}
    for call in calls_of(message):
        # A provider refuses two calls with one id; only the first can have had a result.
        parts.setdefault(
            call.tool_call_id, ToolCallPart(call.tool_call_id, call.name, call.arguments_json or NO_ARGUMENTS)
        )
    return AssistantMessage(
        text=text_of(content, "text"),
        tool_calls=tuple(parts.values()),
        reasoning=text_of(content, "reasoning"),
        reasoning_signature=signature if isinstance(signature, str) else None,
    )


def render_result(message: TranscriptMessage, tool_call_id: ToolCallId) -> ToolMessage:
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
