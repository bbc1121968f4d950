"""The Anthropic dialect, both ways."""

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
from lodger_daemon.models.core.anthropic_request import encode_anthropic
from lodger_daemon.models.core.anthropic_stream import AnthropicStream
from lodger_daemon.models.core.providers import Dialect, Provider
from lodger_daemon.models.core.thinking import seal
from lodger_tools.json_value import JsonObject

PROVIDER = Provider("anthropic", "http://127.0.0.1:9", Dialect.ANTHROPIC)
MARK = {"type": "ephemeral"}
PNG: JsonObject = {"type": "base64", "media_type": "image/png", "data": "AA"}


def test_ids_of_other_providers_are_spelt_so_that_this_one_takes_them() -> None:
    call = ToolCallPart("functions.Bash:0", "Bash", "{}")
    messages = (UserMessage(()), AssistantMessage("", (call,)), ToolMessage("functions.Bash:0", "x", False))
    body = json.dumps(encode_anthropic(ModelRequest("anthropic/x", messages, ()), PROVIDER, "x"))
    assert body.count("functions_Bash_0") == 2
    assert "functions.Bash:0" not in body


def decode(*events: JsonObject, size: int = 10**9) -> list[ModelChunk]:
    data = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()
    decoder = AnthropicStream("anthropic", "p1")
    chunks: list[ModelChunk] = []
    for start in range(0, len(data), size):
        chunks += decoder.feed(data[start : start + size])
    return chunks + decoder.finish()


def block(index: int, head: JsonObject, *deltas: JsonObject) -> list[JsonObject]:
    return [
        {"type": "content_block_start", "index": index, "content_block": head},
        *({"type": "content_block_delta", "index": index, "delta": part} for part in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def ending(reason: str) -> list[JsonObject]:
    return [
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 7}},
        {"type": "message_stop"},
    ]


@pytest.mark.parametrize("size", [1, 5, 10**9])
def test_a_message_with_everything(size: int) -> None:
    usage: JsonObject = {"input_tokens": 10, "cache_read_input_tokens": 60, "cache_creation_input_tokens": 30}
    chunks = decode(
        {"type": "message_start", "message": {"usage": usage}},
        {"type": "ping"},
        *block(
            0,
            {"type": "thinking", "thinking": ""},
            {"type": "thinking_delta", "thinking": "hm"},
            {"type": "signature_delta", "signature": "sig"},
        ),
        *block(1, {"type": "text", "text": ""}, {"type": "text_delta", "text": "ü"}),
        *block(
            2,
            {"type": "tool_use", "id": "t1", "name": "Bash", "input": {}},
            {"type": "input_json_delta", "partial_json": ""},
            {"type": "input_json_delta", "partial_json": '{"a":'},
            {"type": "input_json_delta", "partial_json": "1}"},
        ),
        *block(3, {"type": "tool_use", "id": "t2", "name": "Read", "input": {"b": 2}}),
        *ending("tool_use"),
        size=size,
    )
    state = [{"type": "thinking", "thinking": "hm", "signature": "sig"}]
    assert chunks == [
        ReasoningChunk("hm"),
        ReasoningChunk("", seal("anthropic", state)),
        TextChunk("ü"),
        ToolCallChunk(0, "t1", "Bash", ""),
        ToolCallChunk(0, None, None, '{"a":'),
        ToolCallChunk(0, None, None, "1}"),
        ToolCallChunk(1, "t2", "Read", ""),
        ToolCallChunk(1, None, None, '{"b": 2}'),
        StepEnded(FinishReason.TOOL_CALLS, Usage(100, 7, 60, 30)),
    ]


def test_two_thinking_blocks_are_sealed_together() -> None:
    heads: list[JsonObject] = [
        {"type": "redacted_thinking", "data": "d"},
        {"type": "thinking", "thinking": "x", "signature": "s"},
    ]
    chunks = decode(*block(0, heads[0]), *block(1, heads[1]), *ending("end_turn"))
    assert [c.signature for c in chunks if isinstance(c, ReasoningChunk) and c.signature][-1] == seal(
        "anthropic", list(heads)
    )


def test_an_error_event_is_that_failure() -> None:
    with pytest.raises(ModelFailure) as caught:
        decode(
            *block(0, {"type": "text", "text": "a"}),
            {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}},
        )
    assert (caught.value.kind, caught.value.output_seen) == (FailureKind.OVERLOADED, True)


def test_a_stream_without_stop_reason_is_cut_short() -> None:
    with pytest.raises(ModelFailure) as caught:
        decode(*block(0, {"type": "text", "text": "a"}))
    assert caught.value.kind is FailureKind.CUT_SHORT


def test_a_request_is_encoded_whole() -> None:
    thinking: list[object] = [{"type": "thinking", "thinking": "hm", "signature": "sig"}]
    request = ModelRequest(
        handle="anthropic/claude-sonnet-4-5",
        messages=(
            SystemMessage("be good"),
            UserMessage(({"type": "text", "text": "one"},)),
            AssistantMessage(
                "two ",
                (ToolCallPart("a", "Bash", '{"x":1}'), ToolCallPart("b", "Bash", "{broken")),
                "hm",
                seal("anthropic", thinking),
            ),
            ToolMessage("a", "", False),
            ToolMessage("b", "bad", True),
            UserMessage(({"type": "text", "text": "three"}, {"type": "text", "text": " "})),
            AssistantMessage(""),
            UserMessage(({"type": "image", "source": PNG},)),
        ),
        tools=(ToolSchema("Bash", "runs", {"type": "object"}),),
        reasoning_effort="low",
    )
    body = encode_anthropic(request, PROVIDER, "claude-sonnet-4-5")
    assert body == {
        "model": "claude-sonnet-4-5",
        "max_tokens": 32_000,
        "stream": True,
        "thinking": {"type": "enabled", "budget_tokens": 2048},
        "system": [{"type": "text", "text": "be good", "cache_control": MARK}],
        "tools": [{"name": "Bash", "description": "runs", "input_schema": {"type": "object"}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "one", "cache_control": MARK}]},
            {"role": "assistant", "content": [
                *thinking,
                {"type": "text", "text": "two"},
                {"type": "tool_use", "id": "a", "name": "Bash", "input": {"x": 1}},
                {"type": "tool_use", "id": "b", "name": "Bash", "input": {"invalid_json": "{broken"}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "(no output)"},
                {"type": "tool_result", "tool_use_id": "b", "content": "bad", "is_error": True},
                {"type": "text", "text": "three"},
                {"type": "image", "source": PNG, "cache_control": MARK},
            ]},
        ],
    }  # fmt: skip


def test_without_a_system_prompt_the_tools_carry_the_mark() -> None:
    request = ModelRequest(
        "anthropic/m",
        (UserMessage(({"type": "text", "text": "x"},)),),
        (ToolSchema("A", "", {}), ToolSchema("B", "", {})),
    )
    tools = encode_anthropic(request, PROVIDER, "m")["tools"]
    assert [("cache_control" in tool) for tool in tools] == [False, True]  # type: ignore[union-attr]


def test_calls_without_end_are_refused() -> None:
    decoder = AnthropicStream("anthropic", "p1")
    block: JsonObject = {"type": "tool_use", "id": "c", "name": "Bash"}
    with pytest.raises(ModelFailure, match="1000 tool calls"):
        for number in range(2000):
            event: JsonObject = {"type": "content_block_start", "index": number, "content_block": block}
            decoder.feed(b"data: %s\n\n" % json.dumps(event).encode())


def test_half_a_character_in_an_id_is_marked_since_no_database_takes_it() -> None:
    block: JsonObject = {"type": "tool_use", "id": "c\ud83d", "name": "Bash"}
    event = json.dumps({"type": "content_block_start", "index": 0, "content_block": block}).encode()
    assert AnthropicStream("anthropic", "p1").feed(b"data: %s\n\n" % event) == [ToolCallChunk(0, "c\ufffd", "Bash", "")]
