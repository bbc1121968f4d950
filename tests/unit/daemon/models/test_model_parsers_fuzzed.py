"""Whatever a provider sends, a decoder answers with chunks or a `ModelFailure`, and ends at most once."""

import json
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from lodger_daemon.models.contract import ModelChunk, ModelFailure, StepEnded
from lodger_daemon.models.core.anthropic_stream import AnthropicStream
from lodger_daemon.models.core.dialects import StreamDecoder
from lodger_daemon.models.core.failures import failure_of_response
from lodger_daemon.models.core.frames import read_report, report_fields
from lodger_daemon.models.core.json_fields import parse_object
from lodger_daemon.models.core.model_lists import listed_models
from lodger_daemon.models.core.openai_stream import OpenAiStream

NAMES = """
    id index choices delta message content text tool_calls function name arguments finish_reason usage error code type
    reasoning thinking signature content_block partial_json content_block_start content_block_delta content_block_stop
    text_delta tool_use input_json_delta thinking_delta message_delta message_stop stop data models \ud83d \ude00
"""
WORDS = st.sampled_from(NAMES.split())
LEAVES = st.one_of(WORDS, st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5))
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=5), max_leaves=20
)
OPENAI = st.fixed_dictionaries(
    {
        "choices": st.lists(
            st.fixed_dictionaries({"delta": st.dictionaries(WORDS, VALUES, max_size=4), "finish_reason": VALUES}),
            max_size=2,
        )
    }
)
KINDS = st.sampled_from(
    ["content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop", "error"]
)
ANTHROPIC = st.fixed_dictionaries(
    {"type": KINDS, "index": st.integers(0, 2) | VALUES, "delta": VALUES, "content_block": VALUES}
)
EVENTS = st.lists(st.one_of(OPENAI, ANTHROPIC, st.dictionaries(WORDS, VALUES, max_size=5)), max_size=8)


def run(make: Callable[[str, str], StreamDecoder], data: bytes, size: int) -> None:
    decoder = make("p", "1")
    chunks: list[ModelChunk] = []
    try:
        for start in range(0, len(data), size):
            chunks += decoder.feed(data[start : start + size])
        chunks += decoder.finish()
    except ModelFailure:
        pass
    assert [type(chunk) for chunk in chunks].count(StepEnded) <= 1
    for chunk in chunks:
        fields = json.loads(json.dumps(report_fields(1, chunk)))
        assert read_report(fields) == (1, chunk)
        # Nothing that cannot be stored as UTF-8 comes through.
        json.dumps(fields, ensure_ascii=False).encode()


@given(EVENTS, st.integers(1, 50))
@settings(max_examples=150, deadline=None)
def test_odd_events(events: list[dict[str, object]], size: int) -> None:
    data = "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode()
    run(OpenAiStream, data, size)
    run(AnthropicStream, data, size)


@given(st.binary(max_size=300), st.integers(1, 50))
@settings(max_examples=100, deadline=None)
def test_odd_bytes(data: bytes, size: int) -> None:
    run(OpenAiStream, b"data: " + data, size)
    run(AnthropicStream, data, size)
    failure_of_response(500, {"retry-after": data.decode("latin-1")}, data, 0.0)


@given(st.dictionaries(WORDS, VALUES, max_size=5), st.integers(400, 599))
@settings(max_examples=150, deadline=None)
def test_odd_answers(answer: dict[str, object], status: int) -> None:
    body = json.dumps(answer).encode()
    failure_of_response(status, {}, body, 0.0)
    listed_models(parse_object(body) or {})
    for make in (OpenAiStream, AnthropicStream):
        try:
            make("p", "1").whole(body)
        except ModelFailure:
            pass
