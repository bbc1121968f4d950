"""What every kind of model worker owes the daemon: one suite, run against each with a real endpoint process."""

import asyncio
import json
from typing import Any

from lodger_daemon.models.contract import (
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
    ToolSchema,
    UserMessage,
)
from lodger_daemon.models.gateway import Models
from support.endpoint_process import EndpointProcess, model_endpoint


def scripted(handle: str, step: dict[str, Any], label: str = "x") -> ModelRequest:
    text = f"{label} <<{json.dumps({'steps': [step]})}>>"
    schema = ToolSchema("Bash", "Runs a command.", {"type": "object", "properties": {"command": {"type": "string"}}})
    return ModelRequest(handle, (SystemMessage("be good"), UserMessage(({"type": "text", "text": text},))), (schema,))


async def collect(models: Models, request: ModelRequest) -> list[ModelChunk]:
    return [chunk async for chunk in models.stream(request)]


async def failure(models: Models, request: ModelRequest) -> ModelFailure:
    try:
        await collect(models, request)
    except ModelFailure as found:
        return found
    raise AssertionError("the step should have failed")


def texts(chunks: list[ModelChunk]) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk))


def calls(chunks: list[ModelChunk]) -> list[tuple[str | None, str | None, str]]:
    """Id, name and whole arguments of each call, in order."""
    found: dict[int, list[Any]] = {}
    for chunk in chunks:
        if isinstance(chunk, ToolCallChunk):
            call = found.setdefault(chunk.index, [chunk.tool_call_id, chunk.name, ""])
            call[2] += chunk.arguments_fragment
    return [(c[0], c[1], c[2]) for _, c in sorted(found.items())]


class ModelContract:
    """Inherit, and provide the fixtures `models`, `endpoint` and `handle`."""

    cached = 64
    """Cached tokens of the endpoint's answers, where its dialect tells them."""
    keeps_ids = True
    """Whether the dialect has ids for calls."""

    async def test_text_arrives_in_order_and_ends_once(self, models: Models, handle: str) -> None:
        chunks = await collect(models, scripted(handle, {"numbered": 50}))
        assert texts(chunks) == "".join(f"w{n} " for n in range(50))
        assert [type(c) for c in chunks].count(StepEnded) == 1
        last = chunks[-1]
        assert isinstance(last, StepEnded)
        assert (last.finish, last.usage.prompt, last.usage.completion, last.usage.cached) == (
            FinishReason.STOP, 100, 7, self.cached,
        )  # fmt: skip

    async def test_two_calls_with_whole_arguments(self, models: Models, handle: str) -> None:
        wanted = [{"name": "Bash", "arguments": {"command": f"echo {n} ü"}, "id": f"c{n}"} for n in (1, 2)]
        chunks = await collect(models, scripted(handle, {"text": "will do", "calls": wanted}))
        found = [(call_id, name, json.loads(text)) for call_id, name, text in calls(chunks)]
        assert [call[1:] for call in found] == [(w["name"], w["arguments"]) for w in wanted]
        assert not self.keeps_ids or [call_id for call_id, *_ in found] == ["c1", "c2"]
        assert len({call_id for call_id, *_ in found if call_id}) == 2
        assert isinstance(chunks[-1], StepEnded) and chunks[-1].finish is FinishReason.TOOL_CALLS

    async def test_reasoning_comes_apart_from_the_text(self, models: Models, handle: str) -> None:
        chunks = await collect(models, scripted(handle, {"reasoning": "let me see", "text": "seen"}))
        assert "".join(c.text for c in chunks if isinstance(c, ReasoningChunk)) == "let me see"
        assert texts(chunks) == "seen"

    async def test_an_answer_cut_at_the_limit_says_so(self, models: Models, handle: str) -> None:
        words = "max_tokens" if "anthropic" in handle else "length"
        chunks = await collect(models, scripted(handle, {"text": "half", "finish": words}))
        assert isinstance(chunks[-1], StepEnded) and chunks[-1].finish is FinishReason.LENGTH

    async def test_a_rate_limit_says_how_long(self, models: Models, handle: str) -> None:
        fault = {"status": 429, "type": "rate_limit_error", "retry_after": "7"}
        found = await failure(models, scripted(handle, {"fault": fault}))
        assert (found.kind, found.retry_after_s, found.output_seen) == (FailureKind.RATE_LIMIT, 7.0, False)

    async def test_a_provider_with_too_much_to_do_says_how_long(self, models: Models, handle: str) -> None:
        fault = {"status": 529, "type": "overloaded_error", "message": "Overloaded", "retry_after": "3"}
        found = await failure(models, scripted(handle, {"fault": fault}))
        assert (found.kind, found.retry_after_s, found.output_seen) == (FailureKind.OVERLOADED, 3.0, False)

    async def test_an_overflow_teaches_the_window(self, models: Models, handle: str) -> None:
        fault = {"status": 400, "type": "invalid_request_error", "code": "context_length_exceeded",
                 "message": "prompt is too long: 4711 tokens > 4096 maximum context length"}  # fmt: skip
        found = await failure(models, scripted(handle, {"fault": fault}))
        assert (found.kind, found.context_window) == (FailureKind.CONTEXT_OVERFLOW, 4096)

    async def test_failures_by_kind(self, models: Models, handle: str) -> None:
        too_long = {"status": 400, "type": "invalid_request_error", "code": "context_length_exceeded",
                    "message": "prompt is too long: maximum context length is 10 tokens"}  # fmt: skip
        for fault, kind in (
            (too_long, FailureKind.CONTEXT_OVERFLOW),
            ({"status": 401, "type": "authentication_error", "message": "no such key"}, FailureKind.AUTHENTICATION),
            ({"status": 404, "type": "not_found_error", "code": "model_not_found",
              "message": "model 'scripted' not found"}, FailureKind.UNKNOWN_MODEL),
            ({"status": 500, "message": "a fault of ours"}, FailureKind.SERVER),
        ):  # fmt: skip
            assert (await failure(models, scripted(handle, {"fault": fault}))).kind is kind

    async def test_a_broken_connection_is_cut_short(self, models: Models, handle: str) -> None:
        found = await failure(models, scripted(handle, {"numbered": 30, "cut_after": 20, "delay_ms": 1}))
        assert (found.kind, found.output_seen) == (FailureKind.CUT_SHORT, True)

    async def test_an_error_in_mid_stream_is_retryable(self, models: Models, handle: str) -> None:
        step = {"numbered": 30, "error_after": 20, "delay_ms": 1, "fault": {"message": "oh", "type": "api_error"}}
        found = await failure(models, scripted(handle, step))
        assert found.retryable and found.output_seen

    async def test_a_web_page_is_no_answer(self, models: Models, handle: str) -> None:
        found = await failure(models, scripted(handle, {"quirk": "html"}))
        assert not found.output_seen
        assert found.kind is not FailureKind.WORKER_LOST

    async def test_a_provider_that_sends_us_elsewhere_is_not_followed(self, models: Models, handle: str) -> None:
        """Neither the key nor the conversation goes to an address that its person did not choose."""
        with model_endpoint() as elsewhere:
            found = await failure(models, scripted(handle, {"redirect": elsewhere.url}))
            assert (found.kind, found.output_seen) == (FailureKind.BAD_REQUEST, False), found
            assert elsewhere.requests() == []

    async def test_an_abort_before_the_first_word_closes_the_request(
        self, models: Models, handle: str, endpoint: EndpointProcess
    ) -> None:
        label = f"early-{handle}"

        def states(seen: list[dict[str, Any]]) -> list[str]:
            return [request["state"] for request in seen if label in json.dumps(request["body"])]

        step = asyncio.create_task(collect(models, scripted(handle, {"text": "late", "first_ms": 60_000}, label)))
        await asyncio.to_thread(endpoint.wait_until, lambda seen: states(seen) == ["answering"])
        step.cancel()
        await asyncio.gather(step, return_exceptions=True)
        await asyncio.to_thread(endpoint.wait_until, lambda seen: states(seen) == ["gone"], 1.0)

    async def test_closing_early_closes_the_request(
        self, models: Models, handle: str, endpoint: EndpointProcess
    ) -> None:
        label = f"close-{handle}"
        stream = models.stream(scripted(handle, {"numbered": 30, "hang_after": 20}, label))
        async for _ in stream:
            break
        await stream.aclose()
        took_s = await asyncio.to_thread(
            endpoint.wait_until, lambda seen: any(label in json.dumps(r["body"]) and r["state"] == "gone" for r in seen)
        )
        # 100 ms is promised on an idle machine; the tests share theirs.
        assert took_s < 0.5

    async def test_many_steps_at_once_do_not_mix(self, models: Models, handle: str) -> None:
        wanted = [f"answer {n} " * 20 for n in range(8)]
        found = await asyncio.gather(
            *(collect(models, scripted(handle, {"text": text, "chunks": 20, "delay_ms": 1})) for text in wanted)
        )
        assert [texts(chunks) for chunks in found] == wanted
