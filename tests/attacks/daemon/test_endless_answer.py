"""A hostile model endpoint whose answer never ends: it is broken off before it costs the machine its memory."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from lodger_daemon.models import reports
from lodger_daemon.models.contract import FailureKind, ModelFailure, ModelRequest, UserMessage
from lodger_daemon.models.gateway import Models
from lodger_daemon.paths import Paths
from lodger_daemon.system_clock import SystemClock

FRAGMENT = "A" * 1000
CALL = {"index": 0, "id": "c", "type": "function", "function": {"name": "Bash", "arguments": FRAGMENT}}
KINDS: dict[str, dict[str, Any]] = {
    "text": {"content": FRAGMENT},
    "thoughts": {"reasoning_content": FRAGMENT},
    "arguments": {"tool_calls": [CALL]},
    "many-small-pieces": {"content": "A"},
}
NAMELESS: dict[str, Any] = {"tool_calls": [{"index": 0, "function": {"arguments": FRAGMENT}}]}
"""Held back by the worker, which waits for the name of the call."""


@asynccontextmanager
async def endless(delta: dict[str, Any]) -> AsyncIterator[tuple[str, asyncio.Event]]:
    """An endpoint that repeats one chunk until its client has left, which the event tells."""
    left = asyncio.Event()
    chunk = json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    data = f"data: {chunk}\n\n".encode() * 50

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if (await reader.readuntil(b"\r\n\r\n")).startswith(b"GET "):
                writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                return
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
            while True:
                writer.write(data)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            left.set()
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", left
    finally:
        server.close()


async def taken(url: str, left: asyncio.Event, folder: Path, at_most: int) -> tuple[int, ModelFailure | None]:
    """How much came before it was broken off and the connection closed, or `at_most`."""
    paths = Paths(folder / "config", folder / "state", folder / "work", folder)
    models = Models(paths, SystemClock(), {}, {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "k"}, local_servers={})
    await models.start()
    size = 0
    stream = models.stream(ModelRequest("openai/x", (UserMessage(({"type": "text", "text": "hi"},)),), ()))
    try:
        async for chunk in stream:
            size += len(str(chunk))
            if size > at_most:
                return size, None
    except ModelFailure as failure:
        # While the worker lives: its end would close every connection.
        await left.wait()
        return size, failure
    finally:
        await stream.aclose()  # type: ignore[attr-defined]  # it is a generator
        await models.aclose()
    return size, None


@pytest.mark.parametrize("delta", KINDS.values(), ids=list(KINDS))
async def test_is_broken_off(delta: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "ANSWER_LIMIT_CHARACTERS", 256 * 1024)
    async with endless(delta) as (url, left), asyncio.timeout(30):
        size, failure = await taken(url, left, tmp_path, 4 * 1024 * 1024)
        assert failure is not None
        assert failure.kind is FailureKind.BAD_REQUEST
        assert size < 2 * 1024 * 1024


async def test_arguments_of_a_call_that_never_gets_a_name_are_broken_off(tmp_path: Path) -> None:
    async with endless(NAMELESS) as (url, left), asyncio.timeout(30):
        size, failure = await taken(url, left, tmp_path, 0)
    assert failure is not None and size == 0
    assert (failure.kind, "without a name" in failure.message) == (FailureKind.BAD_REQUEST, True)


async def test_a_stream_that_says_nothing_for_ever_is_broken_off(tmp_path: Path) -> None:
    async with endless({"nothing": "A" * 100_000}) as (url, left), asyncio.timeout(60):
        size, failure = await taken(url, left, tmp_path, 0)
    assert failure is not None and size == 0
    assert (failure.kind, "256 MiB" in failure.message) == (FailureKind.BAD_REQUEST, True)


async def test_control_without_the_limit_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "ANSWER_LIMIT_CHARACTERS", 1 << 62)
    async with endless(KINDS["text"]) as (url, left), asyncio.timeout(60):
        size, failure = await taken(url, left, tmp_path, 4 * 1024 * 1024)
        assert failure is None
        assert size > 4 * 1024 * 1024
