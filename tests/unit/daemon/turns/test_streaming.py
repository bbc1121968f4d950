"""A model's stream that breaks off, falls silent, has no end, or does not close."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from lodger_daemon.models.contract import (
    FailureKind,
    FinishReason,
    ModelChunk,
    ModelFailure,
    ModelRequest,
    StepEnded,
    TextChunk,
    ToolCallChunk,
    Usage,
)
from lodger_daemon.turns import closing_work, streaming
from lodger_daemon.turns.core import events as seen
from lodger_daemon.turns.core.events import LoopStatus
from lodger_daemon.turns.core.stop_reasons import StopReason
from lodger_daemon.turns.services import TurnOptions
from support.turn_parts import Gate, House, ScriptedModels, says

END = StepEnded(FinishReason.STOP, Usage(prompt=10, completion=2))


class StubbornModels(ScriptedModels):
    """The first stream is played by a function of the test."""

    def __init__(self, first: Callable[[], AsyncIterator[ModelChunk]]) -> None:
        super().__init__()
        self._first = first

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelChunk]:
        if self.requests:
            async for chunk in super().stream(request):
                yield chunk
            return
        self.requests.append(request)
        stream = self._first()
        try:
            async for chunk in stream:
                yield chunk
        finally:
            await stream.aclose()  # type: ignore[attr-defined]  # it is a generator


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    one = House(tmp_path)
    yield one
    await one.close()


def finished(house: House) -> list[StopReason]:
    return [event.stop_reason for event in house.events if isinstance(event, seen.TurnFinished)]


def texts(house: House) -> str:
    return "".join(event.text for event in house.events if isinstance(event, seen.AssistantText))


async def test_what_was_shown_of_a_broken_stream_is_void_before_it_is_said_again(house: House) -> None:
    await house.start()
    house.models.play([TextChunk("half")], says("whole"))
    await house.say("go", "m1")
    await house.until_seen(seen.RetryAnnounced)
    await house.until(lambda: house.clock.sleeping > 0)
    house.clock.advance(5)
    await house.settled()
    told = [e for e in house.events if isinstance(e, seen.AssistantText | seen.RunVoided)]
    first, void, second = told
    assert isinstance(first, seen.AssistantText)
    assert isinstance(second, seen.AssistantText)
    assert void == seen.RunVoided(first.run_id)
    assert second.run_id != first.run_id


async def test_a_wait_for_another_try_is_shown_with_its_end_to_whoever_looks(house: House) -> None:
    key = await house.start()
    house.models.play([ModelFailure(FailureKind.SERVER, "busy elsewhere", status=409)], says("now"))
    await house.say("go", "m1")
    [retry] = await house.until_seen(seen.RetryAnnounced)
    assert isinstance(retry, seen.RetryAnnounced)
    assert 10_000 <= retry.delay_ms <= 12_500
    until = house.clock.wall() + retry.delay_ms / 1000
    loop = (await house.conversations.snapshot(key)).loop
    assert (loop.status, loop.retry_at) == (LoopStatus.RETRYING_API_REQUEST, pytest.approx(until))
    await house.until(lambda: house.clock.sleeping > 0)
    house.clock.advance(13)
    await house.settled()
    assert finished(house) == [StopReason.END_TURN]
    after = [e for e in house.events if isinstance(e, seen.LoopStatusChanged) and e.retry_at is not None]
    assert {event.status for event in after} == {LoopStatus.RETRYING_API_REQUEST}
    assert (await house.conversations.snapshot(key)).loop.retry_at is None


async def test_a_stream_that_does_not_close_after_its_end_is_done(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "END_LIMIT_S", 0.02)
    await house.start()
    house.models.play([TextChunk("hello"), END, Gate()])
    await house.say("go", "m1")
    await house.settled()
    assert finished(house) == [StopReason.END_TURN]
    assert house.seen(seen.RetryAnnounced) == []
    assert house.models.open_streams == 0


async def test_signs_of_life_without_a_word_are_silence(tmp_path: Path) -> None:
    house = House(tmp_path, TurnOptions(workspace=str(tmp_path), silence_limit_s=0.05))

    async def pinging() -> AsyncIterator[ModelChunk]:
        while True:
            await asyncio.wait({asyncio.ensure_future(asyncio.Event().wait())}, timeout=0.005)
            yield TextChunk("")

    house.models = StubbornModels(pinging)
    await house.start()
    house.models.play(says("whole"))
    await house.say("go", "m1")
    [retry] = await house.until_seen(seen.RetryAnnounced)
    assert isinstance(retry, seen.RetryAnnounced)
    assert retry.reason == "timeout"
    await house.until(lambda: house.clock.sleeping > 0)
    house.clock.advance(5)
    await house.settled()
    assert finished(house) == [StopReason.END_TURN]
    await house.close()


@pytest.mark.parametrize("limit", ["STEP_LIMIT_CHARACTERS", "STEP_LIMIT_S"])
async def test_an_answer_without_end_is_cut_and_what_it_said_is_kept(
    house: House, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(streaming, limit, 40 if limit == "STEP_LIMIT_CHARACTERS" else 0.0)
    await house.start()
    call = ToolCallChunk(0, "c1", "Bash", '{"command": "' + "x" * 40)
    house.models.play([TextChunk("on"), call, *(TextChunk(" and on") for _ in range(1000))], says("shorter then"))
    await house.say("go", "m1")
    await house.settled()
    notes = [e.message for e in house.events if isinstance(e, seen.StatusNote)]
    assert streaming.ENDLESS in notes
    assert house.toolbox.ran == []
    assert len(texts(house)) < 100
    kept = str(house.models.requests[1].messages if len(house.models.requests) > 1 else house.events)
    assert "on" in kept
    assert house.models.open_streams == 0


async def test_the_next_request_waits_until_the_stream_before_it_is_closed(house: House) -> None:
    closing = Gate()

    async def slow_to_close() -> AsyncIterator[ModelChunk]:
        try:
            yield TextChunk("half")
            await asyncio.Event().wait()
        finally:
            await closing.wait()

    house.models = StubbornModels(slow_to_close)
    key = await house.start()
    house.models.play(says("next"))
    await house.say("one", "m1")
    await house.until(lambda: texts(house) == "half")
    assert await house.conversations.abort(key)
    await house.until(closing.reached.is_set)
    await house.say("two", "m2")
    await house.until(lambda: bool(house.seen(seen.QueueChanged)))
    assert len(house.models.requests) == 1
    closing.opened.set()
    await house.settled()
    assert len(house.models.requests) == 2
    assert finished(house) == [StopReason.CANCELLED, StopReason.END_TURN]


async def test_what_never_stops_holds_up_nobody_for_ever(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closing_work, "STOP_LIMIT_S", 0.02)
    at_last = asyncio.Event()

    async def deaf() -> AsyncIterator[ModelChunk]:
        yield TextChunk("half")
        while not at_last.is_set():
            try:
                await at_last.wait()
            except asyncio.CancelledError:
                continue
        yield TextChunk(" of it")

    house.models = StubbornModels(deaf)
    key = await house.start()
    house.models.play(says("next"))
    await house.say("one", "m1")
    await house.until(lambda: texts(house) == "half")
    assert await house.conversations.abort(key)
    await house.say("two", "m2")
    await house.settled()
    assert finished(house) == [StopReason.CANCELLED, StopReason.END_TURN]
    assert closing_work.DOES_NOT_STOP in [e.message for e in house.events if isinstance(e, seen.StatusNote)]
    at_last.set()
    await house.settled()
    assert texts(house) == "halfnext"
