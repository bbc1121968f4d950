"""Conversations over a real database: a turn's events, its prompt, what is stored of it, agents and models."""

from dataclasses import replace

import pytest

from lodger_daemon.turns.contract import (
    Accepted,
    ConversationError,
    NewAgent,
    Refused,
    StartRuntime,
    Submission,
)
from lodger_daemon.turns.core import events as seen
from lodger_daemon.turns.core.events import LoopStatus
from lodger_daemon.turns.core.stop_reasons import StopReason
from support.turn_parts import Gate, House, as_kept, calls, says
from support.turn_reading import finished, names, results, said, said_parts


async def test_a_text_turn_shows_its_events_in_the_order_of_the_wire(house: House) -> None:
    await house.start()
    house.events.clear()
    house.models.play(says("Hel", "lo"))
    assert await house.say("hi", "m1") == Accepted("started")
    assert house.events == []
    await house.settled()
    assert names(house) == [
        "LoopStatusChanged",
        "DeviceStateChanged",
        "LoopStatusChanged",
        "LoopStatusChanged",
        "LoopStatusChanged",
        "AssistantText",
        "AssistantText",
        "UsageReported",
        "RunStopped",
        "LoopStatusChanged",
        "DeviceStateChanged",
        "TurnFinished",
        "DeviceStateChanged",
    ]
    statuses = [event.status for event in house.events if isinstance(event, seen.LoopStatusChanged)]
    assert statuses == [
        LoopStatus.SENDING_API_REQUEST,
        LoopStatus.WAITING_FOR_API_RESPONSE,
        LoopStatus.PROCESSING_API_RESPONSE,
        LoopStatus.PROCESSING_API_RESPONSE,
        LoopStatus.WAITING_ON_INPUT,
    ]
    assert finished(house) == [(StopReason.END_TURN, None)]


async def test_a_client_is_told_which_message_caused_which_run(house: House) -> None:
    await house.start()
    house.models.play(calls("ls"), says("done"))
    await house.say("hi", "m1")
    await house.settled()
    last = house.seen(seen.LoopStatusChanged)[-1]
    assert isinstance(last, seen.LoopStatusChanged)
    assert list((last.client_message_ids or {}).values()) == [("m1",), ("m1",)]


async def test_a_tool_turn_runs_the_call_and_gives_its_result_back(house: House) -> None:
    await house.start()
    house.events.clear()
    house.models.play(calls("ls"), says("done"))
    await house.say("look", "m1")
    await house.settled()
    assert house.toolbox.ran == ["ls"]
    assert results(house.models.requests[1]) == [("c1", "ran ls", False)]
    assert names(house)[5:16] == [
        "ToolCallRequested",
        "UsageReported",
        "RunStopped",
        "LoopStatusChanged",
        "LoopStatusChanged",
        "DeviceStateChanged",
        "ToolStarted",
        "ToolEnded",
        "ToolReturned",
        "LoopStatusChanged",
        "LoopStatusChanged",
    ]
    requested, started = house.seen(seen.ToolCallRequested)[0], house.seen(seen.ToolStarted)[0]
    assert isinstance(requested, seen.ToolCallRequested)
    assert isinstance(started, seen.ToolStarted)
    assert requested.message_id == started.message_id


async def test_the_prompt_prefix_is_byte_stable_and_the_view_grows(house: House) -> None:
    await house.start()
    for number in range(3):
        await house.say(f"message {number}", f"m{number}")
        await house.settled()
    prompts = {request.messages[0] for request in house.models.requests}
    assert len(prompts) == 1
    assert "tea" in str(prompts)
    assert [len(request.messages) for request in house.models.requests] == [2, 4, 6]
    assert house.models.requests[2].messages[:4] == house.models.requests[1].messages[:4]
    first, second = (said_parts(request) for request in house.models.requests[:2])
    assert [len(first), len(second)] == [4, 5]


async def test_a_resent_message_is_accepted_once(house: House) -> None:
    await house.start()
    assert await house.say("hi", "m1") == Accepted("started")
    await house.settled()
    assert await house.say("hi", "m1") == Accepted("started", resent=True)
    await house.settled()
    assert len(house.models.requests) == 1


async def test_an_input_without_messages_or_agent_is_refused(house: House) -> None:
    key = await house.start()
    assert isinstance(await house.conversations.submit(key, Submission(())), Refused)
    stranger = replace(key, agent_id="agent-unknown")
    assert isinstance(await house.conversations.submit(stranger, Submission(())), Refused)


async def test_the_transcript_reads_as_stored_messages(house: House) -> None:
    key = await house.start()
    house.models.play(calls("ls"), says("done"))
    await house.say("look", "m1")
    await house.settled()
    messages = await house.conversations.list_messages(key, descending=False)
    assert [m["message_type"] for m in messages] == [
        "user_message",
        "approval_request_message",
        "tool_return_message",
        "assistant_message",
    ]
    assert messages[0]["content"] == "look"
    requested = house.seen(seen.ToolCallRequested)[0]
    assert isinstance(requested, seen.ToolCallRequested)
    assert messages[1]["id"] == requested.message_id
    rest = await house.conversations.list_messages(key, descending=False, after=str(messages[1]["id"]))
    assert rest == messages[2:]
    newest_first = await house.conversations.list_messages(key)
    assert list(newest_first) == list(reversed(messages))


async def test_events_can_be_read_again_from_any_number(house: House) -> None:
    key = await house.start()
    house.models.play(says("a", "b", "c"))
    await house.say("go", "m1")
    await house.settled()
    stored = await house.conversations.events_after(key, 0)
    assert [e.number for e in stored] == house.numbers[-len(stored) :]
    assert [e.event for e in stored[-len(house.events) :]] == [as_kept(event) for event in house.events]
    middle = next(e.number for e in stored if isinstance(e.event, seen.AssistantText))
    rest = await house.conversations.events_after(key, middle)
    assert [e.event.text for e in rest if isinstance(e.event, seen.AssistantText)] == ["b", "c"]


async def test_start_runtime_opens_makes_and_refuses(house: House) -> None:
    key = await house.start()
    again = await house.conversations.start_runtime(StartRuntime(agent_id=key.agent_id, conversation_id="default"))
    assert (again.key, again.conversation_created, again.agent_created) == (key, False, False)
    fresh = await house.conversations.start_runtime(StartRuntime(agent_id=key.agent_id))
    assert fresh.conversation_created
    for bad in (
        StartRuntime(),
        StartRuntime(agent_id=key.agent_id, new_agent=NewAgent()),
        StartRuntime(agent_id=key.agent_id, conversation_id="conv-unknown"),
        StartRuntime(agent_id="agent-unknown"),  # type: ignore[arg-type]
        StartRuntime(agent_id=key.agent_id, cwd="/no/such/folder"),
    ):
        with pytest.raises(ConversationError):
            await house.conversations.start_runtime(bad)


async def test_an_agent_of_the_remote_is_adopted(house: House) -> None:
    await house.start()
    house.memory.remote = ("agent-far",)  # type: ignore[assignment]
    started = await house.conversations.start_runtime(StartRuntime(agent_id="agent-far"))  # type: ignore[arg-type]
    assert (started.agent.id, started.agent.name) == ("agent-far", "from the remote")


async def test_a_pair_nobody_has_used_is_idle_and_empty(house: House) -> None:
    key = await house.start()
    snapshot = await house.conversations.snapshot(replace(key, agent_id="agent-new"))
    assert (snapshot.processing, snapshot.queue, snapshot.questions) == (False, (), ())


async def test_set_model_changes_the_agent_or_the_conversation(house: House) -> None:
    key = await house.start()
    assert await house.conversations.set_model(key, "other/model") == "agent"
    own = (await house.conversations.start_runtime(StartRuntime(agent_id=key.agent_id))).key
    assert await house.conversations.set_model(own, "third/model") == "conversation"
    await house.say("hi", "m1")
    await house.settled()
    assert house.models.requests[-1].handle == "other/model"


async def test_two_conversations_of_one_agent_run_side_by_side(house: House) -> None:
    key = await house.start()
    other = (await house.conversations.start_runtime(StartRuntime(agent_id=key.agent_id))).key
    gate = Gate()
    house.models.play([gate, *says("slow")], says("quick"))
    await house.say("one", "m1")
    await house.until(gate.reached.is_set)
    house.key, first = other, key
    await house.say("two", "m1")
    await house.settled()
    gate.opened.set()
    await house.conversations.settled(first)
    assert len(house.models.requests) == 2


async def test_a_conversation_nobody_uses_leaves_memory_and_comes_back_whole(house: House) -> None:
    key = await house.start()
    await house.say("one", "m1")
    await house.settled()
    listening = (await house.conversations.start_runtime(StartRuntime(agent_id=key.agent_id))).key
    await house.conversations.submit(listening, Submission(()))
    house.clock.advance(31 * 60)
    await house.conversations.start_runtime(StartRuntime(agent_id=key.agent_id))
    assert house.conversations._registry.in_use(key) is not None, "somebody listens"
    assert house.conversations._registry.in_use(listening) is None
    house.key = listening
    await house.say("two", "m1")
    await house.settled()
    assert said(house.models.requests[-1]) == [["two"]]
