"""An OpenAI chat completion as it streams in, with the habits of the servers that imitate it."""

import json
from dataclasses import dataclass, field
from typing import Final

from lodger_daemon.models.contract import (
    FinishReason,
    ModelChunk,
    ModelFailure,
    ReasoningChunk,
    StepEnded,
    TextChunk,
    ToolCallChunk,
    Usage,
)
from lodger_daemon.models.core.failures import (
    CALLS_LIMIT,
    cut_short,
    failure_of_event,
    page_instead_of_stream,
    too_much,
)
from lodger_daemon.models.core.inline_thinking import InlineThinking
from lodger_daemon.models.core.json_fields import as_list, as_object, as_text, parse_object
from lodger_daemon.models.core.openai_usage import usage_in
from lodger_daemon.models.core.sse import EventReader
from lodger_daemon.models.core.surrogates import PairJoiner, whole_characters
from lodger_daemon.models.core.thinking import seal
from lodger_tools.json_value import Json, JsonObject

_FINISH: Final = {
    "stop": FinishReason.STOP,
    "eos": FinishReason.STOP,
    "end_turn": FinishReason.STOP,
    "tool_calls": FinishReason.TOOL_CALLS,
    "function_call": FinishReason.TOOL_CALLS,
    "length": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
}

_WAITING_LIMIT_CHARACTERS: Final = 1024 * 1024
"""Of arguments before the id and name of their call, which the servers that are late with them send in the next
chunk. What waits is reported to nobody, so no other limit sees it."""
_REASONING_FIELDS: Final = ("reasoning_content", "reasoning")


@dataclass(slots=True)
class _Call:
    """One tool call under way. Arguments wait until id and name are known."""

    index: int
    call_id: str = ""
    name: str = ""
    waiting: str = ""
    announced: bool = False
    joiner: PairJoiner = field(default_factory=PairJoiner)


class OpenAiStream:
    """Bytes in, chunks out; implements `StreamDecoder`.

    Args:
        provider: whose signature goes on reasoning.
        id_prefix: for calls the server gives no id; unique among the steps of a conversation.
    """

    def __init__(self, provider: str, id_prefix: str) -> None:
        self._provider = provider
        self._id_prefix = id_prefix
        self._events = EventReader()
        self._inline = InlineThinking()
        self._text = PairJoiner()
        self._reasoning = PairJoiner()
        self._sealed_field = ""
        self._calls: list[_Call] = []
        self._current: dict[int, _Call] = {}
        self._refused = False
        self._finish: FinishReason | None = None
        self._usage = Usage()
        self._output_seen = False
        self._sniffed = b""
        self._failure: ModelFailure | None = None
        self.ended = False

    def feed(self, data: bytes) -> list[ModelChunk]:
        """Raises: ModelFailure for an error object in the stream or something that is not a stream. One that comes
        behind chunks is raised by `finish`, so that none of them is lost; `ended` is set then."""
        if len(self._sniffed) < 16:
            self._sniffed += data[:16]
            if self._sniffed.lstrip()[:1] == b"<":
                raise page_instead_of_stream()
        chunks: list[ModelChunk] = []
        try:
            for event in self._events.feed(data):
                self._event(event.name, event.data, chunks)
        except ModelFailure as failure:
            if not chunks:
                raise
            self._failure, self.ended = failure, True
        return chunks

    def finish(self) -> list[ModelChunk]:
        """Nothing more is read. Raises: ModelFailure when the answer failed or has no end."""
        if self._failure is not None:
            raise self._failure
        chunks: list[ModelChunk] = []
        for event in self._events.finish():
            self._event(event.name, event.data, chunks)
        if not self.ended:
            if self._finish is None:
                raise cut_short(self._output_seen)
            self._end(chunks)
        return chunks

    def whole(self, body: bytes) -> list[ModelChunk]:
        """An answer that came in one piece although a stream was asked for."""
        answer = parse_object(body)
        if answer is None:
            raise cut_short(False)
        chunks: list[ModelChunk] = []
        self._answer(answer, chunks)
        self._end(chunks)
        return chunks

    def _event(self, name: str, data: str, chunks: list[ModelChunk]) -> None:
        if self.ended:
            return
        if data.strip() == "[DONE]":
            self._end(chunks)
            return
        answer = parse_object(data)
        if answer is None:
            if name == "error":
                raise failure_of_event({"message": data}, self._output_seen)
            return
        if name == "error":
            raise failure_of_event(answer, self._output_seen)
        self._answer(answer, chunks)

    def _answer(self, answer: JsonObject, chunks: list[ModelChunk]) -> None:
        if answer.get("error"):
            raise failure_of_event(answer, self._output_seen)
        # Some report in every chunk, some zeros in the last: the latest that says something counts.
        if (usage := usage_in(answer)) is not None:
            self._usage = usage
        choices = answer.get("choices")
        if not isinstance(choices, list) or not choices:
            return
        choice = as_object(choices[0])
        delta = choice.get("delta")
        if not delta and not self._output_seen:
            # An answer in one piece. After fragments it is their sum once more.
            delta = choice.get("message")
        if isinstance(delta, dict):
            self._delta(delta, chunks)
        if reason := as_text(choice.get("finish_reason")):
            if reason == "error":
                raise failure_of_event(as_object(choice.get("error")) or {"message": "finish reason: error"}, True)
            self._finish = _FINISH.get(reason, FinishReason.UNKNOWN)

    def _delta(self, delta: JsonObject, chunks: list[ModelChunk]) -> None:
        for name in _REASONING_FIELDS:
            if isinstance(text := delta.get(name), str) and text:
                self._reason(text, name, chunks)
                break
        content = delta.get("content")
        if isinstance(content, list):
            self._parts(content, chunks)
        elif isinstance(content, str) and content:
            self._content(content, chunks)
        if isinstance(refusal := delta.get("refusal"), str) and refusal:
            self._refused = True
            self._say(refusal, chunks)
        for call in as_list(delta.get("tool_calls")):
            self._fragment(as_object(call), chunks)
        if isinstance(only := delta.get("function_call"), dict):
            # The form before there were several calls.
            self._fragment({"index": 0, "function": only}, chunks)

    def _parts(self, parts: list[Json], chunks: list[ModelChunk]) -> None:
        for part in map(as_object, parts):
            if part.get("type") == "thinking":
                inner = "".join(as_text(as_object(p).get("text")) for p in as_list(part.get("thinking")))
                self._reason(inner, "", chunks)
            elif text := as_text(part.get("text")):
                self._say(text, chunks)

    def _content(self, content: str, chunks: list[ModelChunk]) -> None:
        self._split(*self._inline.feed(content), chunks)

    def _split(self, thought: str, said: str, chunks: list[ModelChunk]) -> None:
        if thought:
            self._reason(thought, "", chunks)
        if said:
            self._say(said, chunks)

    def _say(self, text: str, chunks: list[ModelChunk]) -> None:
        if text := self._text.feed(text):
            self._output_seen = True
            chunks.append(TextChunk(text))

    def _reason(self, text: str, field_name: str, chunks: list[ModelChunk]) -> None:
        signature = None
        if field_name and field_name != self._sealed_field:
            self._sealed_field = field_name
            signature = seal(self._provider, field_name)
        text = self._reasoning.feed(text)
        if text or signature:
            self._output_seen = True
            chunks.append(ReasoningChunk(text, signature))

    def _fragment(self, fragment: JsonObject, chunks: list[ModelChunk]) -> None:
        function = as_object(fragment.get("function"))
        call_id, name = as_text(fragment.get("id")), as_text(function.get("name"))
        call = self._call_of(fragment.get("index"), call_id, name)
        call.call_id = call.call_id or call_id
        call.name = call.name or name
        arguments = function.get("arguments")
        text = arguments if isinstance(arguments, str) else json.dumps(arguments) if arguments else ""
        self._output_seen = True
        if not call.announced and not (call.call_id and call.name):
            call.waiting += text
            if len(call.waiting) > _WAITING_LIMIT_CHARACTERS:
                raise too_much("a tool call without a name")
            return
        self._emit(call, text, chunks)

    def _call_of(self, index: Json, call_id: str, name: str) -> _Call:
        if isinstance(index, int) and not isinstance(index, bool):
            slot = index
        elif known := next((c for c in self._calls if call_id and c.call_id == call_id), None):
            return known
        elif self._calls and not (call_id and call_id != self._calls[-1].call_id) and not (name and not call_id):
            return self._calls[-1]
        else:
            slot = -1 - len(self._calls)
        call = self._current.get(slot)
        # Some servers put every call at index 0 and tell them apart by id and name only.
        if call is None or (call_id and name and call.call_id and call_id != call.call_id):
            if len(self._calls) >= CALLS_LIMIT:
                raise too_much(f"more than {CALLS_LIMIT} tool calls")
            call = _Call(len(self._calls))
            self._calls.append(call)
            self._current[slot] = call
        return call

    def _emit(self, call: _Call, text: str, chunks: list[ModelChunk]) -> None:
        text, call.waiting = call.waiting + text, ""
        text = call.joiner.feed(text)
        if not call.announced:
            call.announced = True
            call_id, name = whole_characters(call.call_id), whole_characters(call.name)
            chunks.append(ToolCallChunk(call.index, call_id, name, text))
        elif text:
            chunks.append(ToolCallChunk(call.index, None, None, text))

    def _end(self, chunks: list[ModelChunk]) -> None:
        self._split(*self._inline.finish(), chunks)
        if rest := self._text.finish():
            chunks.append(TextChunk(rest))
        for call in self._calls:
            if not call.announced:
                call.call_id = call.call_id or f"call_{self._id_prefix}_{call.index}"
                self._emit(call, "", chunks)
        finish = self._finish or FinishReason.UNKNOWN
        if self._calls and finish in (FinishReason.STOP, FinishReason.UNKNOWN):
            finish = FinishReason.TOOL_CALLS
        elif self._refused and finish is FinishReason.STOP:
            finish = FinishReason.CONTENT_FILTER
        self.ended = True
        chunks.append(StepEnded(finish, self._usage))
