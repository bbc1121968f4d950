"""The OpenAI dialect, both ways, with the habits of the servers that imitate it."""

import json

import pytest

from lodger_daemon.models.contract import (
    AssistantMessage,
    FailureKind,
    FinishReason,
    ModelChunk,
    ModelFailure,
    ModelRequest,
    ReasoningChunk,
    StepEnded,
    SystemMessage,
    TextChunk,
    ToolCallChunk,
    ToolCallPart,
    ToolMessage,
    ToolSchema,
    Usage,
    UserMessage,
)
from lodger_daemon.models.core.json_fields import as_list, as_object
from lodger_daemon.models.core.openai_request import encode_openai
from lodger_daemon.models.core.openai_stream import OpenAiStream
from lodger_daemon.models.core.providers import Dialect, Provider
from lodger_daemon.models.core.thinking import seal
from lodger_tools.json_value import JsonObject

OTHER = Provider("other", "http://127.0.0.1:9/v1", Dialect.OPENAI)


def delta(fields: object, finish: str | None = None) -> str:
    return json.dumps({"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]})


def stream(*events: str) -> bytes:
    return "".join(f"data: {event}\n\n" for event in events).encode()


def decode(data: bytes, size: int = 10**9) -> list[ModelChunk]:
    decoder = OpenAiStream("other", "p1")
    chunks: list[ModelChunk] = []
    for start in range(0, len(data), size):
        chunks += decoder.feed(data[start : start + size])
    return chunks + decoder.finish()


def text_of(chunks: list[ModelChunk]) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10**9])
def test_bytes_may_be_cut_anywhere(size: int) -> None:
    data = (
        b": hello\n\nevent: ping\n\nid: 4\n"
        + 'data: {"choices":[{"delta":{"content":"grüß \U0001f600"}}]}\r\n\r\n'.encode()
        + b'data: {"choices":\ndata: [{"delta":{"content":"!"}}]}\n\n'
        + stream(delta({}, "stop"), '{"choices":[],"usage":null}', "[DONE]")
    )
    chunks = decode(data, size)
    assert text_of(chunks) == "grüß \U0001f600!"
    assert chunks[-1] == StepEnded(FinishReason.STOP, Usage())


def test_an_emoji_cut_in_two_is_put_together_and_half_a_one_is_marked() -> None:
    chunks = decode(
        stream(
            '{"choices":[{"delta":{"content":"a\\ud83d"}}]}',
            '{"choices":[{"delta":{"content":"\\ude00\\ud83d"}}]}',
            delta({}, "stop"),
            "[DONE]",
        )
    )
    assert text_of(chunks) == "a\U0001f600\ufffd"


def test_usage_after_the_finish_reason_is_kept() -> None:
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    chunks = decode(
        stream(delta({"content": "x"}), delta({}, "length"), json.dumps({"choices": [], "usage": usage}), "[DONE]")
    )
    assert chunks == [TextChunk("x"), StepEnded(FinishReason.LENGTH, Usage(9, 3, 4, 0, 2))]


def test_two_calls_by_index_with_ids_repeated_or_not() -> None:
    def call(index: int, call_id: str | None, name: str | None, text: str) -> str:
        return delta({"tool_calls": [{"index": index, "id": call_id, "function": {"name": name, "arguments": text}}]})

    chunks = decode(
        stream(
            call(0, "a", "Read", ""),
            call(0, "a", "Read", '{"x"'),
            call(1, "b", "Bash", "{}"),
            call(0, None, None, ":1}"),
            delta({}, "tool_calls"),
            "[DONE]",
        )
    )
    assert chunks == [
        ToolCallChunk(0, "a", "Read", ""),
        ToolCallChunk(0, None, None, '{"x"'),
        ToolCallChunk(1, "b", "Bash", "{}"),
        ToolCallChunk(0, None, None, ":1}"),
        StepEnded(FinishReason.TOOL_CALLS, Usage()),
    ]


def test_arguments_before_the_id_wait_for_it() -> None:
    chunks = decode(
        stream(
            delta({"tool_calls": [{"index": 0, "function": {"arguments": '{"a"'}}]}),
            delta({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "Bash", "arguments": ":1}"}}]}),
            delta({}, "tool_calls"),
            "[DONE]",
        )
    )
    assert chunks[0] == ToolCallChunk(0, "a", "Bash", '{"a":1}')


def test_calls_without_index_or_all_at_index_zero_stay_apart() -> None:
    for place in ({}, {"index": 0}):
        calls = [{**place, "id": i, "function": {"name": "Bash", "arguments": "{}"}} for i in ("a", "b")]
        chunks = decode(stream(delta({"tool_calls": calls}), delta({}, "stop"), "[DONE]"))
        assert chunks == [
            ToolCallChunk(0, "a", "Bash", "{}"),
            ToolCallChunk(1, "b", "Bash", "{}"),
            StepEnded(FinishReason.TOOL_CALLS, Usage()),
        ]


def test_a_call_without_id_gets_one() -> None:
    call = {"index": 0, "function": {"name": "Bash", "arguments": {"command": "ls"}}}
    chunks = decode(stream(delta({"tool_calls": [call]}), delta({}, "tool_calls"), "[DONE]"))
    assert chunks[0] == ToolCallChunk(0, "call_p1_0", "Bash", '{"command": "ls"}')


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_by_either_name_is_sealed_once(name: str) -> None:
    chunks = decode(
        stream(delta({name: "hm"}), delta({name: "m"}), delta({"content": "x"}), delta({}, "stop"), "[DONE]")
    )
    assert chunks[:3] == [ReasoningChunk("hm", seal("other", name)), ReasoningChunk("m"), TextChunk("x")]


def test_a_done_mark_without_a_reason_is_an_end_of_unknown_kind() -> None:
    assert decode(stream(delta({"content": "x"}), "[DONE]"))[-1] == StepEnded(FinishReason.UNKNOWN, Usage())


def test_a_reason_without_a_done_mark_is_an_end() -> None:
    assert decode(stream(delta({"content": "x"}, "stop")))[-1] == StepEnded(FinishReason.STOP, Usage())


def test_neither_reason_nor_mark_is_cut_short() -> None:
    with pytest.raises(ModelFailure) as caught:
        decode(stream(delta({"content": "x"})))
    assert (caught.value.kind, caught.value.output_seen) == (FailureKind.CUT_SHORT, True)


def test_an_error_in_mid_stream_is_that_error() -> None:
    with pytest.raises(ModelFailure) as caught:
        decode(stream(delta({"content": "x"}), '{"error": {"message": "busy", "code": 529}}'))
    assert (caught.value.kind, caught.value.status, caught.value.output_seen) == (FailureKind.OVERLOADED, 529, True)


def test_a_page_instead_of_a_stream_is_told() -> None:
    with pytest.raises(ModelFailure) as caught:
        decode(b"  <!DOCTYPE html><html></html>", 5)
    assert caught.value.kind is FailureKind.BAD_REQUEST


def test_an_endless_line_is_refused() -> None:
    decoder = OpenAiStream("other", "p1")
    with pytest.raises(ModelFailure, match="16 MiB"):
        for _ in range(20):
            decoder.feed(b"x" * 2**20)


def test_calls_without_end_are_refused_before_they_cost_time() -> None:
    decoder = OpenAiStream("other", "p1")
    with pytest.raises(ModelFailure, match="1000 tool calls") as caught:
        for number in range(2000):
            call = {"id": f"c{number}", "function": {"name": "Bash"}}
            decoder.feed(b"data: %s\n\n" % json.dumps({"choices": [{"delta": {"tool_calls": [call]}}]}).encode())
    assert caught.value.kind is FailureKind.BAD_REQUEST


def test_half_a_character_in_an_id_is_marked_since_no_database_takes_it() -> None:
    call: JsonObject = {"index": 0, "id": "c\ud83d", "function": {"name": "Ba\ud83dsh", "arguments": "{}"}}
    answer = json.dumps({"choices": [{"delta": {"tool_calls": [call]}}]}).encode()
    assert OpenAiStream("other", "p1").feed(b"data: %s\n\n" % answer) == [
        ToolCallChunk(0, "c\ufffd", "Ba\ufffdsh", "{}")
    ]


def test_an_answer_in_one_piece_counts() -> None:
    body = {"choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 1}}
    assert OpenAiStream("other", "p1").whole(json.dumps(body).encode()) == [
        TextChunk("hi"),
        StepEnded(FinishReason.STOP, Usage(1)),
    ]


def test_a_request_is_encoded_whole() -> None:
    request = ModelRequest(
        handle="other/m",
        messages=(
            SystemMessage("be good"),
            UserMessage(
                (
                    {"type": "text", "text": "look"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}},
                )
            ),
            AssistantMessage(
                "", (ToolCallPart("a", "Bash", '{"command":"ls"}'),), "hm", seal("other", "reasoning_content")
            ),
            ToolMessage("a", "x", False),
        ),
        tools=(ToolSchema("Bash", "runs", {"type": "object"}),),
        max_output_tokens=5,
    )
    assert encode_openai(request, OTHER, "m") == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "be good"},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "look"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
                ],
            },
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "hm",
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "Bash", "arguments": '{"command":"ls"}'}}
                ],
            },
            {"role": "tool", "tool_call_id": "a", "content": "x"},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [
            {"type": "function", "function": {"name": "Bash", "description": "runs", "parameters": {"type": "object"}}}
        ],
        "max_tokens": 5,
    }


def test_reasoning_of_another_provider_is_dropped() -> None:
    message = AssistantMessage("x", (ToolCallPart("a", "Bash", "{}"),), "hm", seal("elsewhere", "reasoning_content"))
    body = encode_openai(ModelRequest("other/m", (SystemMessage("s"), message), ()), OTHER, "m")
    assert "hm" not in json.dumps(body)


@pytest.mark.parametrize(
    ("provider", "model", "marked"),
    [
        (Provider("openrouter", "https://openrouter.ai/api/v1", Dialect.OPENAI), "anthropic/claude-sonnet-4.5", True),
        (Provider("bedrock", "", Dialect.LITELLM), "anthropic.claude-sonnet-4-5", True),
        (Provider("openrouter", "https://openrouter.ai/api/v1", Dialect.OPENAI), "openai/gpt-5", False),
        (OTHER, "claude-lookalike", False),
    ],
)
def test_claude_behind_this_dialect_gets_its_cache_marks(provider: Provider, model: str, marked: bool) -> None:
    said = tuple(UserMessage(({"type": "text", "text": f"u{n}"},)) for n in range(3))
    image: JsonObject = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "eA=="}}
    pictured = UserMessage(({"type": "text", "text": "look"}, image))
    messages = (SystemMessage("s"), *said, AssistantMessage("a"), pictured)
    body = encode_openai(ModelRequest("x/y", messages, ()), provider, model)
    encoded = [as_object(message) for message in as_list(body["messages"])]
    mark = {"cache_control": {"type": "ephemeral"}}
    if not marked:
        assert "cache_control" not in json.dumps(body)
        return
    assert encoded[0]["content"] == [{"type": "text", "text": "s"} | mark]
    assert [message["content"] for message in encoded[1:3]] == ["u0", "u1"]
    assert encoded[3]["content"] == [{"type": "text", "text": "u2"} | mark]
    assert as_object(as_list(encoded[5]["content"])[1])["cache_control"] == mark["cache_control"]
    assert json.dumps(body).count("cache_control") == 3
