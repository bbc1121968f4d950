"""Steps of a model that fail, break off, fall silent or say nothing."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from lodger_daemon.models.contract import (
    FailureKind,
    ModelFailure,
    TextChunk,
    UserMessage,
)
from lodger_daemon.turns.core import events as seen
from lodger_daemon.turns.core.stop_reasons import StopReason
from lodger_daemon.turns.services import TurnOptions
from support.turn_parts import Gate, House, says
from support.turn_reading import finished, said


async def test_a_failure_is_tried_again_with_the_same_input_and_then_ends_the_turn(house: House) -> None:
    await house.start()
    failure = ModelFailure(FailureKind.SERVER, "500")
    house.models.play([failure], [failure], [failure], [failure], says("back"))
    await house.say("go", "m1")
    for attempt in range(3):
        await house.until_seen(seen.RetryAnnounced, attempt + 1)
        await house.until(lambda: house.clock.sleeping > 0)
        house.clock.advance(100)
    await house.settled()
    assert finished(house) == [(StopReason.LLM_API_ERROR, "500")]
    assert [said(request) for request in house.models.requests] == [[["go"]]] * 4
    await house.say("again", "m2")
    await house.settled()
    assert said(house.models.requests[4]) == [["go"], ["again"]]


async def test_a_stream_that_breaks_off_is_tried_again_in_a_new_run(house: House) -> None:
    await house.start()
    house.models.play([TextChunk("half")], says("whole"))
    await house.say("go", "m1")
    await house.until_seen(seen.RetryAnnounced)
    await house.until(lambda: house.clock.sleeping > 0)
    house.clock.advance(5)
    await house.settled()
    stops = [(e.run_id, e.stop_reason) for e in house.events if isinstance(e, seen.RunStopped)]
    assert [reason for _, reason in stops] == [StopReason.LLM_API_ERROR, StopReason.END_TURN]
    assert stops[0][0] != stops[1][0]
    fragments = [e for e in house.events if isinstance(e, seen.AssistantText)]
    assert fragments[0].otid != fragments[1].otid
    assert said(house.models.requests[1]) == [["go"]]


async def test_an_empty_answer_is_tried_twice_and_reminded_in_the_users_role(house: House) -> None:
    await house.start()
    house.models.play(says(), says(), says("now"))
    await house.say("go", "m1")
    for attempt in range(2):
        await house.until_seen(seen.RetryAnnounced, attempt + 1)
        await house.until(lambda: house.clock.sleeping > 0)
        house.clock.advance(5)
    await house.settled()
    last = house.models.requests[2].messages[-1]
    assert isinstance(last, UserMessage)
    assert "empty" in str(last.parts)
    assert finished(house) == [(StopReason.END_TURN, None)]


@pytest.mark.parametrize("before", [[], [TextChunk("half")]], ids=["at once", "in mid-answer"])
async def test_a_model_that_falls_silent_is_given_up_and_tried_again(tmp_path: Path, before: list[Any]) -> None:
    house = House(tmp_path, TurnOptions(workspace=str(tmp_path), silence_limit_s=0.02))
    await house.start()
    house.models.play([*before, Gate()], says("whole"))
    await house.say("go", "m1")
    [retry] = await house.until_seen(seen.RetryAnnounced)
    assert isinstance(retry, seen.RetryAnnounced)
    assert retry.reason == "timeout"
    assert house.models.open_streams == 0
    await house.until(lambda: house.clock.sleeping > 0)
    house.clock.advance(5)
    await house.settled()
    assert finished(house) == [(StopReason.END_TURN, None)]
    await house.close()


async def test_r9_a_daemon_that_was_replaced_asks_no_model(house: House) -> None:
    await house.start()
    slow = house.toolbox.gates["slow"] = Gate()
    house.models.play([ModelFailure(FailureKind.SERVER, "500")], says("never"))
    await house.say("one", "m1")
    await house.until_seen(seen.RetryAnnounced)
    await house.until(lambda: house.clock.sleeping > 0)
    with sqlite3.connect(house.folder / "lodger.db") as other:
        other.execute("UPDATE ownership SET epoch = epoch + 1")
    house.clock.advance(5)
    await house.until_seen(seen.LoopFailed)
    assert len(house.models.requests) == 1
    assert not slow.reached.is_set()
