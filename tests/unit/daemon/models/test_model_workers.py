"""The lean worker in both dialects, as the daemon uses it: real process, real HTTP."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lodger_daemon.clock import MonoTime
from lodger_daemon.models.contract import FailureKind, FinishReason, StepEnded, TextChunk, ToolSchema
from lodger_daemon.models.core.dialects import encode
from lodger_daemon.models.core.providers import Dialect, Provider
from lodger_daemon.models.gateway import Models
from lodger_daemon.models.worker_link import WorkerLink
from lodger_daemon.paths import Paths
from lodger_daemon.system_clock import SystemClock
from lodger_tools.json_value import JsonObject
from support.endpoint_process import EndpointProcess, model_endpoint
from support.model_contract import calls, collect, failure, scripted, texts
from support.programs import until

KEY = "sk-test-8c1f"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[EndpointProcess]:
    with model_endpoint() as running:
        yield running


@pytest.fixture
async def models(endpoint: EndpointProcess, tmp_path: Path) -> AsyncIterator[Models]:
    paths = Paths(tmp_path / "config", tmp_path / "state", tmp_path / "work", tmp_path)
    environment = {
        "OPENAI_BASE_URL": f"{endpoint.url}/v1",
        "OPENAI_API_KEY": KEY,
        "ANTHROPIC_BASE_URL": endpoint.url,
        "ANTHROPIC_API_KEY": KEY,
    }
    gateway = Models(paths, SystemClock(), {}, environment, local_servers={})
    await gateway.start()
    yield gateway
    await gateway.aclose()


async def test_the_key_goes_where_each_dialect_wants_it(models: Models, endpoint: EndpointProcess) -> None:
    await collect(models, scripted("openai/scripted", {"text": "a"}))
    await collect(models, scripted("anthropic/scripted", {"text": "a"}))
    openai, anthropic = endpoint.requests()[-2:]
    assert openai["headers"]["authorization"] == f"Bearer {KEY}"
    assert anthropic["headers"]["x-api-key"] == KEY
    assert {request["headers"]["accept-encoding"] for request in (openai, anthropic)} == {"identity"}


async def test_a_key_that_the_provider_repeats_is_not_shown(models: Models) -> None:
    fault = {"status": 401, "message": f"wrong key {KEY}", "code": "invalid_api_key"}
    found = await failure(models, scripted("openai/scripted", {"fault": fault}))
    advice = "(the key of openai was not accepted; `lodger connect openai` takes another)"
    assert (found.message, str(found)) == (f"HTTP 401: wrong key *** {advice}",) * 2


async def test_a_request_comes_as_it_was_whatever_its_characters(models: Models, endpoint: EndpointProcess) -> None:
    deep: JsonObject = {"type": "object"}
    for _ in range(300):
        deep = {"items": deep}
    for text in ("é \u2028 \x00 \x7f 😀", "half of a pair: \ud83d"):
        for handle in ("openai/scripted", "anthropic/scripted"):
            for schema in ({"type": "object"}, deep):
                said = scripted(handle, {"text": "a"}, label=text)
                await collect(models, replace(said, tools=(ToolSchema("Bash", text, schema),)))
                body = endpoint.requests()[-1]["body"]
                assert json.dumps(text)[1:-1] in json.dumps(body["messages"])
                assert json.dumps(schema) in json.dumps(body["tools"])


async def test_the_quirks_over_real_http(models: Models) -> None:
    call = {"name": "Bash", "arguments": {"command": "ls"}, "id": "c"}
    for quirk in ("no_index", "late_id", "split", "no_done", "whole"):
        chunks = await collect(models, scripted("openai/scripted", {"calls": [call], "quirk": quirk}))
        assert calls(chunks) == [("c", "Bash", '{"command": "ls"}')], quirk
        assert isinstance(chunks[-1], StepEnded) and chunks[-1].finish is FinishReason.TOOL_CALLS
    assert (await failure(models, scripted("openai/scripted", {"quirk": "html"}))).kind is FailureKind.BAD_REQUEST
    named_wrong = await collect(models, scripted("openai/scripted", {"text": "a stream", "quirk": "wrong_type"}))
    assert texts(named_wrong) == "a stream"
    fault = {"message": "slow down", "type": "rate_limit_error", "code": "rate_limit_exceeded"}
    for handle in ("openai/scripted", "anthropic/scripted"):
        found = await failure(models, scripted(handle, {"quirk": "error_200", "fault": fault}))
        assert found.kind is FailureKind.RATE_LIMIT


async def test_what_a_server_refuses_to_know_is_left_out_from_then_on(
    models: Models, endpoint: EndpointProcess
) -> None:
    chunks = await collect(models, scripted("openai/scripted", {"text": "a", "refuse": "stream_options"}, "left-out"))
    assert texts(chunks) == "a"
    await collect(models, scripted("openai/scripted", {"text": "b"}, "left-out"))
    refused, answered, later = [r for r in endpoint.requests() if "left-out" in json.dumps(r["body"])]
    assert refused["state"] == "fault"
    assert "stream_options" in refused["body"]
    assert "stream_options" not in answered["body"]
    assert "stream_options" not in later["body"]
    stubborn = await failure(models, scripted("openai/scripted", {"text": "a", "refuse": "messages"}))
    assert stubborn.kind is FailureKind.BAD_REQUEST


async def test_a_server_that_is_not_there_is_a_network_failure(tmp_path: Path) -> None:
    paths = Paths(tmp_path / "config", tmp_path / "state", tmp_path / "work", tmp_path)
    gateway = Models(paths, SystemClock(), {"mine": {"base_url": "http://127.0.0.1:9/v1"}}, {}, local_servers={})
    assert (await failure(gateway, scripted("mine/x", {}))).kind is FailureKind.NETWORK
    assert (await failure(gateway, scripted("nobody/x", {}))).kind is FailureKind.UNKNOWN_MODEL
    await gateway.aclose()


async def test_a_worker_killed_in_mid_stream_is_told_and_replaced(models: Models) -> None:
    stream = models.stream(scripted("openai/scripted", {"numbered": 9, "hang_after": 5}))
    assert isinstance(await anext(stream), TextChunk)
    (pid,) = models.worker_pids()
    os.kill(pid, signal.SIGKILL)
    lost = None
    try:
        async for _ in stream:
            pass
    except Exception as found:
        lost = found
    assert (getattr(lost, "kind", None), getattr(lost, "output_seen", None)) == (FailureKind.WORKER_LOST, True)
    assert texts(await collect(models, scripted("openai/scripted", {"text": "again"}))) == "again"
    assert models.worker_pids() != (pid,)


async def test_the_worker_ends_with_its_daemon(models: Models) -> None:
    await collect(models, scripted("openai/scripted", {"text": "a"}))
    (pid,) = models.worker_pids()
    await models.aclose()
    assert not Path(f"/proc/{pid}").exists()


async def test_an_unread_stream_does_not_hold_up_others(models: Models) -> None:
    slow = models.stream(scripted("openai/scripted", {"numbered": 3000}))
    await anext(slow)
    async with asyncio.timeout(5):
        assert texts(await collect(models, scripted("openai/scripted", {"text": "quick"}))) == "quick"
    await slow.aclose()


async def test_an_answer_without_end_is_cut_off(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lodger_daemon.models.reports.ANSWER_LIMIT_CHARACTERS", 10_000)
    endless = await failure(models, scripted("openai/scripted", {"text": "x" * 20_000}))
    assert (endless.kind, endless.message) == (
        FailureKind.BAD_REQUEST,
        "The provider's answer is longer than 10000 characters and was cut off.",
    )
    assert texts(await collect(models, scripted("openai/scripted", {"text": "short"}))) == "short"


async def test_the_catalogue_and_the_default(models: Models) -> None:
    listed = await models.list_models()
    assert [(m.handle, m.context_window, m.is_default) for m in listed] == [
        ("anthropic/scripted", 200_000, True),
        ("openai/scripted", 200_000, False),
        ("practice/practice", 32_768, False),
    ]
    described = await models.describe("openai/scripted")
    assert described is not None and (described.context_window, described.source) == (200_000, "environment")
    assert await models.describe("groq/x") is None
    status = (await models.providers())[1]
    assert (status.name, status.reachable, status.key_from) == ("openai", True, "environment")
    assert KEY not in json.dumps([repr(s) for s in await models.providers()])


async def test_what_became_of_each_models_latest_steps_is_known(models: Models) -> None:
    await collect(models, scripted("openai/scripted", {"text": "a"}))
    await failure(models, scripted("nobody/serves", {"text": "a"}))
    await failure(
        models, scripted("openai/scripted", {"fault": {"status": 401, "type": "authentication_error", "message": "no"}})
    )
    latest, *_ = models.outcomes.all()
    assert (latest.handle, latest.failure) == ("openai/scripted", FailureKind.AUTHENTICATION)
    assert latest.succeeded_at is not None
    assert latest.failed_at is not None
    assert latest.succeeded_at <= latest.failed_at


class SteppedClock(SystemClock):
    """Stands still; waits end when the test says so."""

    def __init__(self) -> None:
        self.waits: list[tuple[float, asyncio.Event]] = []

    def mono(self) -> MonoTime:
        return MonoTime(1000.0)

    async def sleep(self, delay_s: float) -> None:
        over = asyncio.Event()
        self.waits.append((delay_s, over))
        await over.wait()


@pytest.fixture
async def idle_link(endpoint: EndpointProcess, tmp_path: Path) -> AsyncIterator[tuple[WorkerLink, SteppedClock]]:
    clock = SteppedClock()
    link = WorkerLink("lodger_daemon.models.worker", tmp_path, {}, clock, idle_limit_s=600.0)
    yield link, clock
    await link.aclose()


async def one_step(link: WorkerLink, endpoint: EndpointProcess, step: dict[str, object]) -> str:
    provider = Provider("mine", f"{endpoint.url}/v1", Dialect.OPENAI)
    request = scripted("mine/x", step)
    body = json.dumps(encode(request, provider, "x")).encode()
    return texts([chunk async for chunk in link.step(provider, "x", body)])


async def test_a_worker_with_nothing_to_do_is_ended_and_started_again(
    idle_link: tuple[WorkerLink, SteppedClock], endpoint: EndpointProcess
) -> None:
    link, clock = idle_link
    assert await one_step(link, endpoint, {"text": "a"}) == "a"
    first = link.pid
    assert await one_step(link, endpoint, {"text": "b"}) == "b"
    assert link.pid == first
    await until(lambda: len(clock.waits) == 2, "the worker rests")
    (_, early), (delay_s, last) = clock.waits
    early.set()  # that of the first step, which the second has made void
    await asyncio.sleep(0)
    assert link.pid == first
    assert delay_s == 600.0
    last.set()
    await until(lambda: not Path(f"/proc/{first}").exists(), "the worker is ended")
    assert link.pid is None
    assert await one_step(link, endpoint, {"text": "c"}) == "c"
    await until(lambda: len(clock.waits) == 3, "the worker rests")
    assert clock.waits[2][0] == 600.0, "no pause before a worker that was ended in good order"


async def test_a_worker_in_use_is_not_ended(
    idle_link: tuple[WorkerLink, SteppedClock], endpoint: EndpointProcess
) -> None:
    link, clock = idle_link
    assert await one_step(link, endpoint, {"text": "a"}) == "a"
    await until(lambda: len(clock.waits) == 1, "the worker rests")
    running = asyncio.create_task(one_step(link, endpoint, {"numbered": 3, "first_ms": 1500}))
    await asyncio.to_thread(endpoint.wait_until, lambda seen: seen[-1]["state"] == "answering")
    clock.waits[0][1].set()
    assert await running == "w0 w1 w2 "


async def test_a_worker_that_grew_is_replaced(endpoint: EndpointProcess, tmp_path: Path) -> None:
    link = WorkerLink("lodger_daemon.models.worker", tmp_path, {}, SystemClock(), memory_limit_bytes=1)
    try:
        assert await one_step(link, endpoint, {"text": "a"}) == "a"
        first = link.pid
        assert await one_step(link, endpoint, {"text": "b"}) == "b"
        await until(lambda: link.pid != first, "the worker is ended")
    finally:
        await link.aclose()
