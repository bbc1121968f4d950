"""The summary call, with a model that never comes to an end."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import cast

import pytest

from lodger_daemon.backends.core.budget import BYTES_PER_TOKEN, Budget
from lodger_daemon.backends.core.transcript import MessageKind, TranscriptMessage
from lodger_daemon.backends.local.summariser import Summariser, input_limits
from lodger_daemon.clock import WallTime
from lodger_daemon.identity import MessageId
from lodger_daemon.models.contract import (
    FailureKind,
    ModelChunk,
    ModelFailure,
    ModelGateway,
    ModelRequest,
    TextChunk,
    UserMessage,
)
from lodger_daemon.randomness import SeededRng
from support.patience import LIMIT_S
from support.turn_parts import TestClock

LARGE = Budget(100_000, 0, 0)


class Endless:
    """Goes on saying the same, at every turn of the loop."""

    def __init__(self) -> None:
        self.closed = False

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelChunk]:
        try:
            while True:
                yield TextChunk("and ")
                await asyncio.sleep(0)
        finally:
            self.closed = True


async def test_a_summary_without_end_is_given_up_and_its_request_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lodger_daemon.backends.local.summariser.SUMMARY_LIMIT_S", 0.05)
    models = Endless()
    async with asyncio.timeout(LIMIT_S):
        with pytest.raises(ModelFailure) as failed:
            await summariser(models).summarise("any/model", (), LARGE, "", "key")
    assert (failed.value.retryable, models.closed) == (False, True)


def summariser(models: object, clock: TestClock | None = None) -> Summariser:
    return Summariser(cast("ModelGateway", models), clock or TestClock(), SeededRng(1))


@dataclass
class Failing:
    """Fails as it is told, then says its piece; keeps what it was asked."""

    failures: list[ModelFailure]
    asked: list[str] = field(default_factory=list)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelChunk]:
        last = request.messages[-1]
        assert isinstance(last, UserMessage)
        self.asked.append(str(last.parts[0]["text"]))
        if self.failures:
            raise self.failures.pop(0)
        yield TextChunk("They spoke of tea.")


def long_talk() -> tuple[TranscriptMessage, ...]:
    return (TranscriptMessage(MessageId("m"), MessageKind.ASSISTANT, {"text": "word " * 100_000}, WallTime(0.0)),)


async def test_what_is_too_long_for_the_model_is_asked_again_shorter() -> None:
    too_long = [ModelFailure(FailureKind.CONTEXT_OVERFLOW, "too long") for _ in range(3)]
    models = Failing(too_long)
    assert await summariser(models).summarise("any/model", long_talk(), LARGE, "", "key") == "They spoke of tea."
    sizes = [len(text) for text in models.asked]
    assert sizes == sorted(sizes, reverse=True)
    assert (sizes[0] > 115_000, sizes[-1] < 12_000) == (True, True)


async def test_a_summary_that_never_fits_ends() -> None:
    models = Failing([ModelFailure(FailureKind.CONTEXT_OVERFLOW, "too long") for _ in range(50)])
    with pytest.raises(ModelFailure):
        await summariser(models).summarise("any/model", long_talk(), LARGE, "", "key")
    assert len(models.asked) == len(input_limits(LARGE))


async def test_a_model_that_stumbles_is_asked_again_after_a_wait() -> None:
    clock = TestClock()
    models = Failing([ModelFailure(FailureKind.OVERLOADED, "busy", output_seen=True) for _ in range(2)])
    asking = asyncio.ensure_future(summariser(models, clock).summarise("any/model", (), LARGE, "", "key"))
    async with asyncio.timeout(LIMIT_S):
        while not asking.done():
            clock.advance(60)
            await asyncio.sleep(0)
    assert (await asking, len(models.asked)) == ("They spoke of tea.", 3)


async def test_a_refused_key_is_not_tried_again() -> None:
    models = Failing([ModelFailure(FailureKind.AUTHENTICATION, "no such key")])
    with pytest.raises(ModelFailure, match="no such key"):
        await summariser(models).summarise("any/model", (), LARGE, "", "key")
    assert len(models.asked) == 1


def test_the_first_input_surely_fits_the_window() -> None:
    assert input_limits(LARGE)[0] == 120_000
    small = Budget(8_192, 6_000, 1_638)
    assert input_limits(small)[0] <= (small.window - 2 * small.summary) * BYTES_PER_TOKEN
    assert list(input_limits(small)) == sorted(input_limits(small), reverse=True)
