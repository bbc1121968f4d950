"""An Anthropic message as it streams in."""

import json
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
from lodger_daemon.models.core.json_fields import as_count, as_list, as_object, as_text, parse_object
from lodger_daemon.models.core.sse import EventReader
from lodger_daemon.models.core.surrogates import PairJoiner, whole_characters
from lodger_daemon.models.core.thinking import seal
from lodger_tools.json_value import Json, JsonObject

_FINISH: Final = {
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "pause_turn": FinishReason.STOP,
    "tool_use": FinishReason.TOOL_CALLS,
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "refusal": FinishReason.CONTENT_FILTER,
}


class AnthropicStream:
    """Bytes in, chunks out; implements `StreamDecoder`."""

    def __init__(self, provider: str, id_prefix: str) -> None:
        self._provider = provider
        self._id_prefix = id_prefix
        self._events = EventReader()
        self._open: dict[int, JsonObject] = {}
        self._joiners: dict[int, PairJoiner] = {}
        self._call_index: dict[int, int] = {}
        self._thinking: list[Json] = []
        self._finish: FinishReason | None = None
        self._counts: dict[str, int] = {}
        self._output_seen = False
        self._sniffed = b""
        self._failure: ModelFailure | None = None
        self.ended = False

    def feed(self, data: bytes) -> list[ModelChunk]:
        """Raises: ModelFailure for an error event or something that is not a stream. One that comes behind chunks is
        raised by `finish`, so that none of them is lost; `ended` is set then."""
        if len(self._sniffed) < 16:
            self._sniffed += data[:16]
            if self._sniffed.lstrip()[:1] == b"<":
                raise page_instead_of_stream()
        chunks: list[ModelChunk] = []
        try:
            for event in self._events.feed(data):
                self._event(event.data, chunks)
        except ModelFailure as failure:
            if not chunks:
                raise
            self._failure, self.ended = failure, True
        self._output_seen = self._output_seen or bool(chunks)
        return chunks

    def finish(self) -> list[ModelChunk]:
        """Nothing more is read. Raises: ModelFailure when the answer failed or has no end."""
        if self._failure is not None:
            raise self._failure
        chunks: list[ModelChunk] = []
        for event in self._events.finish():
            self._event(event.data, chunks)
        if not self.ended:
            if self._finish is None:
                raise cut_short(self._output_seen)
            self._end(chunks)
        return chunks

    def whole(self, body: bytes) -> list[ModelChunk]:
        """A message that came in one piece although a stream was asked for."""
        message = parse_object(body)
        if message is None:
            raise cut_short(False)
        if message.get("type") == "error" or message.get("error"):
            raise failure_of_event(message, False)
        chunks: list[ModelChunk] = []
        self._count(as_object(message.get("usage")))
        for index, block in enumerate(map(as_object, as_list(message.get("content")))):
            self._start(index, block, chunks)
            self._stop(index, chunks)
        self._finish = _FINISH.get(as_text(message.get("stop_reason")), FinishReason.UNKNOWN)
        self._end(chunks)
        return chunks

    def _event(self, data: str, chunks: list[ModelChunk]) -> None:
        event = parse_object(data)
        if event is None or self.ended:
            return
        index = as_count(event.get("index"))
        match event.get("type"):
            case "content_block_delta":
                self._delta(index, as_object(event.get("delta")), chunks)
            case "content_block_start":
                self._start(index, as_object(event.get("content_block")), chunks)
            case "content_block_stop":
                self._stop(index, chunks)
            case "message_start":
                self._count(as_object(as_object(event.get("message")).get("usage")))
            case "message_delta":
                self._count(as_object(event.get("usage")))
                if reason := as_text(as_object(event.get("delta")).get("stop_reason")):
                    self._finish = _FINISH.get(reason, FinishReason.UNKNOWN)
            case "message_stop":
                self._end(chunks)
            case "error":
                raise failure_of_event(event, self._output_seen or bool(chunks))
            case _:
                if event.get("error"):
                    raise failure_of_event(event, self._output_seen or bool(chunks))

    def _start(self, index: int, block: JsonObject, chunks: list[ModelChunk]) -> None:
        self._open[index] = block
        self._joiners[index] = PairJoiner()
        match block.get("type"):
            case "text":
                self._say(index, as_text(block.get("text")), chunks)
            case "thinking":
                if text := as_text(block.get("thinking")):
                    chunks.append(ReasoningChunk(whole_characters(text)))
            case "tool_use":
                if len(self._call_index) >= CALLS_LIMIT:
                    raise too_much(f"more than {CALLS_LIMIT} tool calls")
                number = self._call_index[index] = len(self._call_index)
                call_id = as_text(block.get("id")) or f"toolu_{self._id_prefix}_{number}"
                name = whole_characters(as_text(block.get("name")))
                chunks.append(ToolCallChunk(number, whole_characters(call_id), name, ""))

    def _delta(self, index: int, delta: JsonObject, chunks: list[ModelChunk]) -> None:
        block = self._open.get(index, {})
        match delta.get("type"):
            case "text_delta":
                self._say(index, as_text(delta.get("text")), chunks)
            case "thinking_delta":
                text = self._joiner(index).feed(as_text(delta.get("thinking")))
                block["thinking"] = as_text(block.get("thinking")) + text
                if text:
                    chunks.append(ReasoningChunk(text))
            case "signature_delta":
                block["signature"] = as_text(block.get("signature")) + as_text(delta.get("signature"))
            case "input_json_delta":
                text = self._joiner(index).feed(as_text(delta.get("partial_json")))
                block["streamed"] = True
                if text and index in self._call_index:
                    chunks.append(ToolCallChunk(self._call_index[index], None, None, text))

    def _joiner(self, index: int) -> PairJoiner:
        return self._joiners.setdefault(index, PairJoiner())

    def _say(self, index: int, text: str, chunks: list[ModelChunk]) -> None:
        if text := self._joiner(index).feed(text):
            chunks.append(TextChunk(text))

    def _stop(self, index: int, chunks: list[ModelChunk]) -> None:
        block = self._open.pop(index, {})
        rest = self._joiner(index).finish()
        match block.get("type"):
            case "text" if rest:
                chunks.append(TextChunk(rest))
            case "thinking" | "redacted_thinking":
                self._thinking.append(block)
                chunks.append(ReasoningChunk("", seal(self._provider, list(self._thinking))))
            case "tool_use" if not block.get("streamed") and block.get("input"):
                chunks.append(ToolCallChunk(self._call_index[index], None, None, json.dumps(block["input"])))

    def _count(self, usage: JsonObject) -> None:
        """Counts are totals; later events repeat or complete earlier ones."""
        for name in ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"):
            # Proxies repeat them as zero.
            self._counts[name] = max(self._counts.get(name, 0), as_count(usage.get(name)))

    def _end(self, chunks: list[ModelChunk]) -> None:
        cached = self._counts.get("cache_read_input_tokens", 0)
        written = self._counts.get("cache_creation_input_tokens", 0)
        usage = Usage(
            prompt=self._counts.get("input_tokens", 0) + cached + written,
            completion=self._counts.get("output_tokens", 0),
            cached=cached,
            cache_written=written,
        )
        self.ended = True
        chunks.append(StepEnded(self._finish or FinishReason.UNKNOWN, usage))
