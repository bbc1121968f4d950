"""A person stops a turn: in mid-stream, in mid-tool, at a question, between two tries."""

from lodger_daemon.identity import QuestionId
from lodger_daemon.models.contract import (
    AssistantMessage,
    FailureKind,
    ModelFailure,
    TextChunk,
)
from lodger_daemon.turns.contract import (
    Allow,
)
from lodger_daemon.turns.core import events as seen
from lodger_daemon.turns.core.stop_reasons import StopReason
from support.turn_parts import Gate, House, calls, says
from support.turn_reading import finished, names, results, said


async def test_an_abort_in_mid_stream_keeps_what_was_said(house: House) -> None:
    key = await house.start()
    gate = Gate()
    house.models.play([TextChunk("half a sen"), gate, *says("tence")], says("again"))
    await house.say("go", "m1")
    await house.until(gate.reached.is_set)
    house.events.clear()
    assert await house.conversations.abort(key)
    assert not (await house.conversations.snapshot(key)).processing
    await house.settled()
    assert names(house)[:3] == ["LoopStatusChanged", "DeviceStateChanged", "StatusNote"]
    assert finished(house) == [(StopReason.CANCELLED, None)]
    assert house.models.open_streams == 0
    await house.say("go on", "m2")
    await house.settled()
    assert AssistantMessage("half a sen") in house.models.requests[1].messages
    assert not await house.conversations.abort(key)


async def test_an_abort_before_the_model_answers_keeps_the_message_and_does_not_run_it_again(house: House) -> None:
    key = await house.start()
    gate = Gate()
    house.models.play([gate, *says("x")], says("hello"))
    await house.say("first", "m1")
    await house.until(gate.reached.is_set)
    await house.conversations.abort(key)
    await house.settled()
    assert finished(house) == [(StopReason.CANCELLED, None)]
    assert len(house.models.requests) == 1
    await house.say("second", "m2")
    await house.settled()
    assert said(house.models.requests[1]) == [["first"], ["second"]]


async def test_an_abort_in_mid_tool_stops_it_and_tells_the_model(house: House) -> None:
    key = await house.start()
    gate = house.toolbox.gates["slow"] = Gate()
    house.models.play(calls("slow", "never"), says("after"))
    await house.say("go", "m1")
    await house.until(gate.reached.is_set)
    house.events.clear()
    assert await house.conversations.abort(key)
    await house.settled()
    assert names(house) == [
        "LoopStatusChanged",
        "DeviceStateChanged",
        "StatusNote",
        "ToolEnded",
        "ToolReturned",
        "TurnFinished",
        "DeviceStateChanged",
    ]
    assert house.toolbox.ended == []
    await house.say("what now", "m2")
    await house.settled()
    assert results(house.models.requests[1]) == [
        ("c1", "Interrupted by user", True),
        ("c2", "Interrupted by user", True),
    ]


async def test_an_abort_while_a_question_is_open_kills_the_question(house: House) -> None:
    key = await house.start()
    house.models.play(calls("ask a"), says("after"))
    await house.say("go", "m1")
    await house.until_seen(seen.QuestionAsked)
    assert await house.conversations.abort(key)
    assert not await house.conversations.answer(key, QuestionId("perm-c1"), Allow())
    await house.settled()
    assert house.toolbox.ran == []
    assert house.seen(seen.ToolEnded) == []
    await house.say("what now", "m2")
    await house.settled()
    assert results(house.models.requests[1]) == [("c1", "Interrupted by user", True)]


async def test_an_abort_while_waiting_for_another_try_ends_the_wait(house: House) -> None:
    key = await house.start()
    house.models.play([ModelFailure(FailureKind.OVERLOADED, "busy", retry_after_s=50)])
    await house.say("go", "m1")
    [retry] = await house.until_seen(seen.RetryAnnounced)
    assert isinstance(retry, seen.RetryAnnounced)
    assert (retry.attempt, retry.max_attempts) == (1, 3)
    assert 50_000 <= retry.delay_ms <= 60_000
    assert await house.conversations.abort(key)
    await house.settled()
    assert finished(house) == [(StopReason.CANCELLED, None)]
    assert house.clock.sleeping == 0


async def test_an_abort_of_another_run_is_refused(house: House) -> None:
    key = await house.start()
    gate = Gate()
    house.models.play([TextChunk("x"), gate, *says("y")])
    await house.say("go", "m1")
    await house.until(gate.reached.is_set)
    assert not await house.conversations.abort(key, "run-other")  # type: ignore[arg-type]
    gate.opened.set()
    await house.settled()
    assert finished(house) == [(StopReason.END_TURN, None)]
