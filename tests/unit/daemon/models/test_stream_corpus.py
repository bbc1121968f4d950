"""Streams as providers send them, kept as files: what each means, however it is cut, and that no damage breaks us.

`corpus/NAME.sse` is the body of an answer, `corpus/NAME.json` what it means. A new habit of a server is one more pair.
"""

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lodger_daemon.models.contract import (
    ModelChunk,
    ModelFailure,
    ReasoningChunk,
    StepEnded,
    TextChunk,
    ToolCallChunk,
)
from lodger_daemon.models.core.anthropic_stream import AnthropicStream
from lodger_daemon.models.core.dialects import StreamDecoder
from lodger_daemon.models.core.openai_stream import OpenAiStream
from lodger_daemon.models.core.thinking import unseal

CORPUS = Path(__file__).parent / "corpus"
NAMES = sorted(path.stem for path in CORPUS.glob("*.sse"))
BODIES = {name: (CORPUS / f"{name}.sse").read_bytes() for name in NAMES}
SEED = 20261130


def decoder_of(name: str) -> StreamDecoder:
    return AnthropicStream("p", "1") if name.startswith("anthropic") else OpenAiStream("p", "1")


def decode(name: str, data: bytes, cuts: list[int]) -> tuple[list[ModelChunk], ModelFailure | None]:
    decoder = decoder_of(name)
    chunks: list[ModelChunk] = []
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    try:
        for start, end in pairwise(edges):
            chunks += decoder.feed(data[start:end])
        chunks += decoder.finish()
    except ModelFailure as failure:
        return chunks, failure
    return chunks, None


def meaning(chunks: list[ModelChunk], failure: ModelFailure | None) -> dict[str, Any]:
    """In the words of the corpus, with everything a reader of the chunks could see."""
    calls: dict[int, list[Any]] = {}
    found: dict[str, Any] = {"text": "", "reasoning": "", "sealed": None}
    for chunk in chunks:
        match chunk:
            case TextChunk(text):
                found["text"] += text
            case ReasoningChunk(text, signature):
                found["reasoning"] += text
                found["sealed"] = unseal(signature, "p") or found["sealed"]
            case ToolCallChunk():
                call = calls.setdefault(chunk.index, [chunk.tool_call_id, chunk.name, ""])
                call[2] += chunk.arguments_fragment
            case StepEnded(finish, usage):
                assert "finish" not in found
                found["finish"] = finish.value
                found["usage"] = [usage.prompt, usage.completion, usage.cached, usage.cache_written]
                found["usage"] += [usage.reasoning, usage.cost_nano_usd]
    found["calls"] = list(calls.values())
    if failure is not None:
        found |= {"failure": failure.kind.value, "output_seen": failure.output_seen}
        found |= {"retry_after_s": failure.retry_after_s, "context_window": failure.context_window}
    return found


@pytest.mark.parametrize("name", NAMES)
def test_what_a_stream_means(name: str) -> None:
    expected = json.loads((CORPUS / f"{name}.json").read_text())
    found = meaning(*decode(name, BODIES[name], []))
    for call, wanted in zip(found["calls"], expected.get("calls", []), strict=True):
        assert call[0], "every call has an id"
        assert [wanted[0] or call[0], *wanted[1:]] == [call[0], call[1], json.loads(call[2])]
    for key, value in expected.items():
        if key != "calls":
            assert found[key] == value, key
    assert ("failure" in found) == ("failure" in expected)


@pytest.mark.parametrize("name", NAMES)
def test_it_means_the_same_however_it_is_cut(name: str) -> None:
    whole = meaning(*decode(name, BODIES[name], []))
    rng = random.Random(f"{SEED} {name}")
    data = BODIES[name]
    for cuts in (list(range(len(data))), *(rng.sample(range(len(data)), min(9, len(data))) for _ in range(10))):
        assert meaning(*decode(name, data, cuts)) == whole


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_that_ends_anywhere_is_whole_or_told(name: str) -> None:
    """Cut after any byte: a failure, or an end that the stream itself had named."""
    data = BODIES[name]
    for size in range(len(data)):
        chunks, failure = decode(name, data[:size], [])
        ends = sum(isinstance(chunk, StepEnded) for chunk in chunks)
        assert ends == (0 if failure else 1)
        said = data[:size]
        assert failure or b"finish_reason" in said or b"stop_reason" in said or b"[DONE]" in said


@given(st.sampled_from(NAMES), st.integers(0, 2**32), st.integers(1, 6))
@settings(max_examples=400, deadline=None)
def test_damage_ends_in_chunks_or_a_failure(name: str, seed: int, changes: int) -> None:
    damage(name, seed, changes)


@pytest.mark.soak
def test_much_damage_ends_in_chunks_or_a_failure() -> None:
    for seed in range(200_000):
        damage(NAMES[seed % len(NAMES)], seed, 1 + seed % 6)


def damage(name: str, seed: int, changes: int) -> None:
    rng = random.Random(seed)
    data = bytearray(BODIES[name])
    other = BODIES[rng.choice(NAMES)]
    for _ in range(changes):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(4):
            case 0:
                data[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                del data[at : at + rng.randrange(40)]
            case 2:
                data[at:at] = data[rng.randrange(len(data) + 1) :][: rng.randrange(80)]
            case _:
                data[at:at] = other[rng.randrange(len(other)) :][: rng.randrange(200)]
        data = data or bytearray(b"\n")
    chunks, _ = decode(name, bytes(data), [rng.randrange(len(data) + 1) for _ in range(5)])
    assert sum(isinstance(chunk, StepEnded) for chunk in chunks) <= 1
    for chunk in chunks:
        if isinstance(chunk, TextChunk):
            chunk.text.encode()
