"""Conversations over a real database: a turn's events, approvals, interruption, the queue."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lodger_daemon.identity import ConversationKey, QuestionId, QueueItemId
from lodger_daemon.memory.contract import AgentCard, ImportReport
from lodger_daemon.models.contract import (
    AssistantMessage,
    FailureKind,
    FinishReason,
    ModelFailure,
    ModelRequest,
    StepEnded,
    TextChunk,
    ToolCallChunk,
    ToolMessage,
    Usage,
    UserMessage,
)
from lodger_daemon.store.errors import StateConflict
from lodger_daemon.turns import preparing, records
from lodger_daemon.turns.contract import (
    Accepted,
    Allow,
    ConversationError,
    Deny,
    NewAgent,
    Refused,
    StartRuntime,
    Submission,
)
from lodger_daemon.turns.core import events as seen
from lodger_daemon.turns.core.events import LoopStatus
from lodger_daemon.turns.core.stop_reasons import StopReason
from lodger_daemon.turns.services import TurnOptions
from lodger_tools.permissions.core.modes import Mode
from lodger_tools.toolbox_contract import Scheduling, ToolDescription, ToolOutcome
from support.turn_parts import SCHEMA, Gate, House, Scripted, as_kept, calls, message, says


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    one = House(tmp_path)
    yield one
    await one.close()


def results(request: ModelRequest) -> list[tuple[str, str, bool]]:
    return [(m.tool_call_id, m.text, m.is_error) for m in request.messages if isinstance(m, ToolMessage)]


def said(request: ModelRequest) -> list[list[str]]:
    """What users said, reminders left out."""
    return [
        [str(part["text"]) for part in m.parts if not str(part["text"]).startswith("<reminder")]
        for m in request.messages
        if isinstance(m, UserMessage)
    ]


def finished(house: House) -> list[tuple[StopReason, str | None]]:
    return [(e.stop_reason, e.error) for e in house.events if isinstance(e, seen.TurnFinished)]


def names(house: House) -> list[str]:
    return [type(event).__name__ for event in house.events if not isinstance(event, seen.MemorySynced)]


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


def said_parts(request: ModelRequest) -> list[str]:
    return [str(p["text"]) for m in request.messages if isinstance(m, UserMessage) for p in m.parts]


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


async def test_an_approval_is_asked_answered_and_runs_once(house: House) -> None:
    key = await house.start()
    house.models.play(calls("ask a"), says("done"))
    await house.say("go", "m1")
    [question] = await house.until_seen(seen.QuestionAsked)
    assert isinstance(question, seen.QuestionAsked)
    assert (question.question_id, question.input) == ("perm-c1", {"command": "ask a"})
    snapshot = await house.conversations.snapshot(key)
    assert snapshot.questions == (question,)
    assert snapshot.processing
    assert await house.conversations.answer(key, QuestionId("perm-c1"), Allow())
    assert not await house.conversations.answer(key, QuestionId("perm-c1"), Allow())
    await house.settled()
    assert house.toolbox.ran == ["ask a"]
    assert (await house.conversations.snapshot(key)).questions == ()


async def test_a_denied_call_becomes_an_error_result_and_the_turn_goes_on(house: House) -> None:
    key = await house.start()
    house.models.play(calls("ask a"), says("a pity"))
    await house.say("go", "m1")
    await house.until_seen(seen.QuestionAsked)
    await house.conversations.answer(key, QuestionId("perm-c1"), Deny("not today"))
    await house.settled()
    assert house.toolbox.ran == []
    assert results(house.models.requests[1]) == [("c1", "not today", True)]
    assert finished(house) == [(StopReason.END_TURN, None)]


async def test_a_rule_denies_without_asking(house: House) -> None:
    await house.start()
    house.models.play(calls("deny it"), says("ok"))
    await house.say("go", "m1")
    await house.settled()
    assert results(house.models.requests[1]) == [("c1", "a rule denies it", True)]
    assert house.seen(seen.QuestionAsked) == []


async def test_a_saved_rule_spares_the_other_questions(house: House) -> None:
    key = await house.start()
    house.models.play(calls("ask a", "ask b"), says("done"))
    await house.say("go", "m1")
    await house.until_seen(seen.QuestionAsked)
    await house.conversations.answer(key, QuestionId("perm-c1"), Allow(suggestion_ids=("save-default",)))
    await house.settled()
    assert [rule.id for rule in house.judge.saved] == ["save-default"]
    assert len(house.seen(seen.QuestionAsked)) == 1
    assert house.toolbox.ran == ["ask a", "ask b"]


async def test_changed_input_is_judged_and_runs_as_changed(house: House) -> None:
    key = await house.start()
    house.models.play(calls("ask a"), says("done"))
    await house.say("go", "m1")
    await house.until_seen(seen.QuestionAsked)
    await house.conversations.answer(key, QuestionId("perm-c1"), Allow(updated_input={"command": "ask b"}))
    await house.settled()
    assert house.toolbox.ran == ["ask b"]
    [started] = house.seen(seen.ToolStarted)
    assert isinstance(started, seen.ToolStarted)
    assert json.loads(started.arguments_json) == {"command": "ask b"}


async def test_the_model_reads_what_the_person_said_as_they_allowed_a_call(house: House) -> None:
    key = await house.start()
    house.models.play(calls("ask a"), says("done"))
    await house.say("go", "m1")
    await house.until_seen(seen.QuestionAsked)
    await house.conversations.answer(key, QuestionId("perm-c1"), Allow("but be quick"))
    await house.settled()
    [(_, text, is_error)] = results(house.models.requests[1])
    assert text.startswith('The person allowed this call and said: "but be quick"\n')
    assert not is_error


async def test_changed_input_that_a_rule_denies_does_not_run(house: House) -> None:
    key = await house.start()
    house.models.play(calls("ask a"), says("done"))
    await house.say("go", "m1")
    await house.until_seen(seen.QuestionAsked)
    await house.conversations.answer(key, QuestionId("perm-c1"), Allow(updated_input={"command": "deny b"}))
    await house.settled()
    assert house.toolbox.ran == []
    assert results(house.models.requests[1]) == [("c1", "a rule denies it", True)]


async def test_a_permission_is_checked_again_right_before_the_call_runs(house: House) -> None:
    await house.start()
    gate = house.toolbox.gates["first"] = Gate()
    house.models.play(calls("first", "second"), says("done"))
    await house.say("go", "m1")
    await house.until(gate.reached.is_set)
    house.judge.denied.add("second")
    gate.opened.set()
    await house.settled()
    assert house.toolbox.ran == ["first"]
    assert results(house.models.requests[1])[1] == ("c2", "a rule denies it", True)


async def test_nobody_answers_within_the_limit(house: House) -> None:
    await house.start()
    house.models.play(calls("ask a"), says("then not"))
    await house.say("go", "m1")
    await house.until_seen(seen.QuestionAsked)
    await house.until(lambda: house.clock.sleeping > 0)
    house.clock.advance(30 * 60 - 1)
    await asyncio.sleep(0)
    assert house.seen(seen.QuestionSettled) == []
    house.clock.advance(2)
    await house.settled()
    [(_, text, is_error)] = results(house.models.requests[1])
    assert is_error
    assert text.startswith("Nobody answered")
    assert house.seen(seen.QuestionSettled) == [seen.QuestionSettled(QuestionId("perm-c1"), "expired")]


async def test_a_client_that_cannot_answer_is_not_asked(house: House) -> None:
    await house.start()
    house.models.play(calls("ask a"), says("then not"))
    await house.say("go", "m1", can_answer_questions=False)
    await house.settled()
    [(_, text, is_error)] = results(house.models.requests[1])
    assert is_error
    assert "cannot answer" in text
    assert house.seen(seen.QuestionAsked) == []


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


async def test_a_call_cut_at_the_token_limit_says_so_and_does_not_run(house: House) -> None:
    await house.start()
    cut = ToolCallChunk(0, "c1", "Bash", '{"command": "rm -rf bui')
    house.models.play([cut, StepEnded(FinishReason.LENGTH, Usage())], says("shorter"))
    await house.say("go", "m1")
    await house.settled()
    [(_, text, is_error)] = results(house.models.requests[1])
    assert is_error
    assert "token limit" in text
    assert house.toolbox.ran == []


async def test_broken_and_unknown_calls_become_results_that_say_so(house: House) -> None:
    await house.start()
    broken = ToolCallChunk(0, "c1", "Bash", "{broken")
    unknown = ToolCallChunk(1, "c2", "Teleport", "{}")
    nameless = ToolCallChunk(2, "c3", None, "{}")
    house.models.play([broken, unknown, nameless, StepEnded(FinishReason.TOOL_CALLS, Usage())], says("sorry"))
    await house.say("go", "m1")
    await house.settled()
    texts = [text for _, text, _ in results(house.models.requests[1])]
    assert texts[0] == "The arguments are not JSON."
    assert "no tool named Teleport" in texts[1]
    assert "names no tool" in texts[2]


async def test_a_reader_pair_overlaps_and_a_writer_waits(house: House) -> None:
    await house.start()
    first, second = Gate(), Gate()
    house.toolbox.gates.update({"r1": first, "r2": second})
    reads = calls("r1", "r2", name="Read")[:2]
    write = ToolCallChunk(2, "c3", "Bash", '{"command": "w"}')
    house.models.play([*reads, write, StepEnded(FinishReason.TOOL_CALLS, Usage())], says("done"))
    await house.say("go", "m1")
    await house.until(lambda: first.reached.is_set() and second.reached.is_set())
    second.opened.set()
    await house.until_seen(seen.ToolReturned)
    assert house.toolbox.ran == ["r1", "r2"]
    first.opened.set()
    await house.settled()
    assert house.toolbox.ran == ["r1", "r2", "w"]
    assert [call_id for call_id, _, _ in results(house.models.requests[1])] == ["c1", "c2", "c3"]


async def test_a_lost_box_is_reported_as_unknown(house: House) -> None:
    await house.start()
    house.toolbox.lost.add("risky")
    house.models.play(calls("risky"), says("let me look"))
    await house.say("go", "m1")
    await house.settled()
    [(_, text, is_error)] = results(house.models.requests[1])
    assert is_error
    assert "unknown" in text


async def test_messages_that_wait_become_one_turn(house: House) -> None:
    key = await house.start()
    gate = Gate()
    house.models.play([TextChunk("x"), gate, *says("y")], says("both"))
    await house.say("one", "m1")
    await house.until(gate.reached.is_set)
    assert await house.say("two", "m2") == Accepted("queued")
    assert await house.say("three", "m3") == Accepted("queued")
    await house.until_seen(seen.QueueChanged, 2)
    assert [item.client_message_id for item in (await house.conversations.snapshot(key)).queue] == ["m2", "m3"]
    house.events.clear()
    gate.opened.set()
    await house.settled()
    assert said(house.models.requests[1]) == [["one"], ["two", "\n", "three"]]
    echoes = house.seen(seen.InputEchoed)
    told = [(e.client_message_id, e.joined) for e in echoes if isinstance(e, seen.InputEchoed)]
    assert told == [("m2", ("m2", "m3"))]
    stored = await house.conversations.list_messages(key, descending=False)
    assert [m.get("client_message_ids") for m in stored if m["message_type"] == "user_message"] == [None, ["m2", "m3"]]
    removed = [e.removed for e in house.events if isinstance(e, seen.QueueChanged) and e.removed]
    assert removed == [(seen.QueueRemoval("m2", "dequeued"), seen.QueueRemoval("m3", "dequeued"))]
    order = names(house)
    assert order.index("InputEchoed") < order.index("QueueChanged")
    assert len(finished(house)) == 2


async def test_a_waiting_message_joins_at_a_tool_boundary_after_the_results(house: House) -> None:
    await house.start()
    gate = house.toolbox.gates["slow"] = Gate()
    house.models.play(calls("slow"), says("both"))
    await house.say("one", "m1")
    await house.until(gate.reached.is_set)
    await house.say("two", "m2")
    await house.say("later", "m3", delivery="turn_end")
    gate.opened.set()
    await house.settled()
    assert said(house.models.requests[1]) == [["one"], ["two"]]
    assert [type(m).__name__ for m in house.models.requests[1].messages][-2:] == ["ToolMessage", "UserMessage"]
    assert said(house.models.requests[2]) == [["one"], ["two"], ["later"]]


async def test_a_waiting_message_can_be_removed(house: House) -> None:
    key = await house.start()
    gate = Gate()
    house.models.play([TextChunk("x"), gate, *says("y")])
    await house.say("one", "m1")
    await house.until(gate.reached.is_set)
    await house.say("two", "m2")
    [item] = (await house.conversations.snapshot(key)).queue
    assert await house.conversations.remove_queued(key, item.id)
    assert not await house.conversations.remove_queued(key, item.id)
    gate.opened.set()
    await house.settled()
    assert len(house.models.requests) == 1


async def stopped_with_two_waiting(house: House) -> ConversationKey:
    key = await house.start()
    gate = Gate()
    house.models.play([TextChunk("x"), gate, *says("y")], says("all"))
    await house.say("one", "m1")
    await house.until(gate.reached.is_set)
    await house.say("two", "m2")
    await house.say("three", "m3")
    assert await house.conversations.abort(key)
    await house.settled()
    assert finished(house) == [(StopReason.CANCELLED, None)]
    return key


async def waiting(house: House) -> list[tuple[str, bool]]:
    return [(item.client_message_id, item.paused) for item in (await house.conversations.snapshot(house.key)).queue]


async def test_an_abort_parks_what_waits_until_the_person_goes_on(house: House) -> None:
    key = await stopped_with_two_waiting(house)
    assert await waiting(house) == [("m2", True), ("m3", True)]
    shown = [event for event in house.events if isinstance(event, seen.QueueChanged)]
    assert [item.paused for item in shown[-1].queue] == [True, True]
    assert await house.conversations.resume_queue(key) == 2
    await house.settled()
    assert await house.conversations.resume_queue(key) == 0
    assert said(house.models.requests[1]) == [["one"], ["two", "\n", "three"]]
    assert await waiting(house) == []


async def test_a_new_message_lets_parked_ones_go_on_before_it(house: House) -> None:
    await stopped_with_two_waiting(house)
    assert await house.say("four", "m4") == Accepted("queued")
    await house.settled()
    assert said(house.models.requests[1]) == [["one"], ["two", "\n", "three", "\n", "four"]]
    assert [reason for reason, _ in finished(house)] == [StopReason.CANCELLED, StopReason.END_TURN]


async def test_a_notice_is_handled_while_messages_are_parked(house: House) -> None:
    key = await stopped_with_two_waiting(house)
    notice = message("task ended", "n1")
    await house.conversations.submit_notice(key, notice, "task_notification", "task_notification")
    await house.settled()
    assert said(house.models.requests[1]) == [["one"], ["task ended"]]
    assert await waiting(house) == [("m2", True), ("m3", True)]


async def test_a_parked_message_can_be_removed_and_a_resent_one_releases_nothing(house: House) -> None:
    key = await stopped_with_two_waiting(house)
    assert await house.say("one", "m1") == Accepted("started", resent=True)
    [first, _] = (await house.conversations.snapshot(key)).queue
    assert await house.conversations.remove_queued(key, first.id)
    assert await waiting(house) == [("m3", True)]
    await house.settled()
    assert len(house.models.requests) == 1


async def test_what_was_parked_stays_parked_over_a_restart(house: House) -> None:
    key = await stopped_with_two_waiting(house)
    await house.crash()
    await house.restart()
    await house.settled()
    assert await waiting(house) == [("m2", True), ("m3", True)]
    assert await house.conversations.resume_queue(key) == 2
    await house.settled()
    assert said(house.models.requests[-1]) == [["one"], ["two", "\n", "three"]]


async def test_nothing_parked_is_taken_while_the_abort_is_still_being_written(house: House) -> None:
    key = await house.start()
    gate = Gate()
    house.models.play([TextChunk("x"), gate, *says("y")])
    await house.say("one", "m1")
    await house.until(gate.reached.is_set)
    await house.say("two", "m2")
    write, held = house.database.write, Gate()

    async def held_write(fn: Callable[[sqlite3.Connection], Any]) -> Any:
        if not held.reached.is_set():
            await held.wait()
        return await write(fn)

    house.database.write = held_write  # type: ignore[method-assign]
    abort = asyncio.ensure_future(house.conversations.abort(key))
    await house.until(held.reached.is_set)
    for _ in range(5):
        # Whatever else was handed to the store so far is written after this.
        await write(lambda _: None)
    assert not abort.done()
    assert finished(house) == []
    held.opened.set()
    assert await abort
    await house.settled()
    assert len(house.models.requests) == 1
    assert await waiting(house) == [("m2", True)]


async def folded_in(house: House, second: list[Scripted]) -> None:
    """A message has joined a turn in mid-turn; the model has not taken it up."""
    await house.start()
    slow = house.toolbox.gates["slow"] = Gate()
    house.models.play(calls("slow"), second, says("both"))
    await house.say("one", "m1")
    await house.until(slow.reached.is_set)
    await house.say("two", "m2")
    slow.opened.set()
    await house.until_seen(seen.InputEchoed)


async def test_what_joined_a_turn_that_a_person_stops_is_parked_at_the_head(house: House) -> None:
    gate = Gate()
    await folded_in(house, [gate])
    await house.until(gate.reached.is_set)
    await house.say("three", "m3")
    assert await house.conversations.abort(house.key)
    await house.settled()
    assert await waiting(house) == [("m2", True), ("m3", True)]
    shown = [event for event in house.events if isinstance(event, seen.QueueChanged)]
    assert [(item.client_message_id, item.paused) for item in shown[-1].queue] == [("m2", True), ("m3", True)]
    assert await house.conversations.resume_queue(house.key) == 2
    await house.settled()
    assert said(house.models.requests[-1]) == [["one"], ["two", "\n", "three"]]


async def test_what_joined_a_turn_that_fails_starts_the_next_one(house: House) -> None:
    await folded_in(house, [ModelFailure(FailureKind.BAD_REQUEST, "no")])
    await house.settled()
    assert [reason for reason, _ in finished(house)] == [StopReason.ERROR, StopReason.END_TURN]
    assert said(house.models.requests[-1]) == [["one"], ["two"]]


async def test_why_the_queue_waits_is_told_when_it_changes(house: House) -> None:
    key = await house.start()
    first = house.toolbox.gates["ask a"] = Gate()
    house.models.play(calls("ask a"), says("done"), says("later"))
    await house.say("one", "m1")
    [question] = await house.until_seen(seen.QuestionAsked)
    assert isinstance(question, seen.QuestionAsked)
    assert house.seen(seen.QueueBlocked) == []
    await house.say("two", "m2", delivery="turn_end")
    await house.until_seen(seen.QueueBlocked)
    await house.say("three", "m3", delivery="turn_end")
    await house.conversations.answer(key, question.question_id, Allow())
    await house.until(first.reached.is_set)
    first.opened.set()
    await house.settled()
    assert [e.reason for e in house.events if isinstance(e, seen.QueueBlocked)] == [
        seen.BlockedBy.QUESTION,
        seen.BlockedBy.TURN,
        None,
    ]


async def test_a_slow_first_clone_is_told_of_and_can_be_stopped(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "TELL_OF_MEMORY_AFTER_S", 0.01)
    cloning = Gate()

    async def prepare(*_: object) -> AgentCard:
        await cloning.wait()
        return AgentCard("slow")

    monkeypatch.setattr(house.memory, "prepare", prepare)
    key = await house.start()
    await house.say("one", "m1")
    await house.until(lambda: preparing.FETCHING_MEMORY in [str(getattr(e, "message", "")) for e in house.events])
    assert await house.conversations.abort(key)
    await house.settled()
    assert finished(house) == [(StopReason.CANCELLED, None)]
    cloning.opened.set()
    await house.say("two", "m2")
    await house.settled()
    assert finished(house)[1:] == [(StopReason.END_TURN, None)]


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


async def test_memory_news_is_announced_once_admitted_and_repeated_until_then(house: House) -> None:
    await house.start()
    await house.say("one", "m1")
    await house.settled()
    house.memory.head, house.memory.news = "commit-2", "The person now likes coffee."
    house.models.play([ModelFailure(FailureKind.SERVER, "500")], says("I see"))
    await house.say("two", "m2")
    await house.until_seen(seen.RetryAnnounced)
    await house.until(lambda: house.clock.sleeping > 0)
    house.clock.advance(5)
    await house.settled()
    assert "coffee" in str(house.models.requests[1].messages[-1])
    assert "coffee" in str(house.models.requests[2].messages[-1])
    await house.say("three", "m3")
    await house.settled()
    last = house.models.requests[3].messages
    assert "coffee" not in str(last[-1])
    assert sum("coffee" in str(m) for m in last) == 1
    assert last[0] == house.models.requests[0].messages[0]


async def test_what_the_agent_committed_joins_the_result_and_is_no_news(house: House) -> None:
    await house.start()
    house.memory.reports.append(ImportReport(True, "commit-2", "Committed to memory."))
    house.memory.news = "should not be told"
    house.models.play(calls("git commit"), says("kept"))
    await house.say("remember", "m1")
    await house.settled()
    [(_, text, _)] = results(house.models.requests[1])
    assert text == "ran git commit\n\nCommitted to memory."
    await house.say("next", "m2")
    await house.settled()
    assert "should not be told" not in str(house.models.requests[2])


async def test_reminders_come_on_change_only(house: House) -> None:
    key = await house.start()
    await house.say("one", "m1")
    await house.settled()
    await house.say("two", "m2")
    await house.settled()
    await house.conversations.change_state(key, Mode.UNRESTRICTED, None)
    await house.say("three", "m3")
    await house.settled()
    last = [m for m in house.models.requests[2].messages if isinstance(m, UserMessage)]
    reminders = [[str(p["text"]) for p in m.parts if str(p["text"]).startswith("<reminder")] for m in last]
    assert [len(texts) for texts in reminders] == [3, 0, 1]
    assert "unrestricted" in reminders[2][0]


async def test_the_ceiling_of_the_machine_holds(tmp_path: Path) -> None:
    house = House(tmp_path, TurnOptions(workspace=str(tmp_path), ceiling=Mode.STANDARD))
    try:
        key = await house.start()
        with pytest.raises(ConversationError):
            await house.conversations.change_state(key, Mode.UNRESTRICTED, None)
        with pytest.raises(ConversationError):
            await house.conversations.change_state(key, None, "/no/such/folder")
    finally:
        await house.close()


async def test_tools_of_clients_are_called_through_them(house: House) -> None:
    await house.start()
    house.external.brought = (ToolDescription("Lamp", "switches", SCHEMA, Scheduling.BARRIER),)
    house.models.play(calls("on", name="Lamp"), says("light"))
    await house.say("light", "m1")
    await house.settled()
    assert house.external.called == [("Lamp", {"command": "on"})]
    assert results(house.models.requests[1]) == [("c1", "client ran Lamp", False)]


async def test_an_allowlist_holds_for_the_turn(house: House) -> None:
    await house.start()
    house.models.play(calls("ls"), says("cannot"))
    await house.say("look", "m1", tool_allowlist=("Read",))
    await house.settled()
    assert [tool.name for tool in house.models.requests[0].tools] == ["Read"]
    assert house.toolbox.ran == []


async def test_running_output_is_shown_at_most_every_tenth_of_a_second(house: House) -> None:
    await house.start()
    house.toolbox.outputs["chatty"] = tuple(f"line {n}" for n in range(50))
    house.models.play(calls("chatty"), says("done"))
    await house.say("go", "m1")
    await house.settled()
    assert len(house.seen(seen.ToolOutput)) == 1


async def test_error_results_stay_errors(house: House) -> None:
    await house.start()
    house.toolbox.outcomes["bad"] = ToolOutcome("error", "exit 1")
    house.models.play(calls("bad"), says("oh"))
    await house.say("go", "m1")
    await house.settled()
    assert results(house.models.requests[1]) == [("c1", "exit 1", True)]


async def test_a_long_conversation_is_compacted_before_it_overflows(house: House) -> None:
    await house.start()
    house.models.window = 3_000
    for number in range(8):
        house.models.play(says("long answer " * 60))
        await house.say(f"question {number} " + "words " * 60, f"m{number}")
        await house.settled()
        if house.seen(seen.StatusNote):
            break
    notes = [e.message for e in house.events if isinstance(e, seen.StatusNote)]
    assert any("summary" in note for note in notes)
    assert finished(house)[-1][0] is StopReason.END_TURN
    last = house.models.requests[-1]
    assert "earlier messages" in str(last.messages[1])
    assert f"question {len(finished(house)) - 1}" in str(last.messages[-1])


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


async def test_a_model_may_use_one_call_id_in_every_step(house: House) -> None:
    await house.start()
    house.models.play(calls("one"), calls("two"), says("done"))
    await house.say("go", "m1")
    await house.settled()
    assert results(house.models.requests[2]) == [("c1", "ran one", False), ("c1-2", "ran two", False)]


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


async def test_a_command_waits_its_turn(house: House) -> None:
    key = await house.start()
    gate = Gate()
    house.models.play([TextChunk("x"), gate, *says("y")])
    await house.say("one", "m1")
    await house.until(gate.reached.is_set)
    with pytest.raises(ConversationError):
        await house.conversations.compact(key)
    gate.opened.set()
    await house.settled()
    report = await house.conversations.compact(key)
    assert report["compacted"] is False
    assert house.seen(seen.LoopStatusChanged)[-1].status is LoopStatus.WAITING_ON_INPUT


async def long_enough_to_compact(house: House) -> ConversationKey:
    key = await house.start()
    for number in range(6):
        house.models.play(says("long answer " * 60))
        await house.say(f"question {number} " + "words " * 60, f"m{number}")
        await house.settled()
    return key


async def test_a_command_whose_client_leaves_is_over_when_it_has_stopped(house: House) -> None:
    key = await long_enough_to_compact(house)
    summing_up, closing = Gate(), Gate()
    stream = house.models.stream

    async def slow_to_close(request: ModelRequest) -> AsyncIterator[Any]:
        try:
            async for chunk in stream(request):
                yield chunk
        finally:
            if summing_up.reached.is_set():
                await closing.wait()

    house.models.stream = slow_to_close  # type: ignore[method-assign]
    house.models.play([summing_up, *says("a summary")], says("after"))
    compacting = asyncio.ensure_future(house.conversations.compact(key))
    await house.until(summing_up.reached.is_set)
    compacting.cancel()
    await house.until(closing.reached.is_set)
    before = len(house.models.requests)
    assert await house.say("and then", "m9") == Accepted("queued")
    await house.until_seen(seen.QueueChanged)
    assert len(house.models.requests) == before
    closing.opened.set()
    await house.settled()
    assert len(house.models.requests) == before + 1


async def test_a_command_that_takes_long_can_be_stopped(house: House) -> None:
    key = await long_enough_to_compact(house)
    summing_up = Gate()
    house.models.play([summing_up, *says("a summary")], says("after"))
    compacting = asyncio.ensure_future(house.conversations.compact(key))
    await house.until(summing_up.reached.is_set)
    await house.say("and then", "m9")
    assert await house.conversations.abort(key)
    with pytest.raises(ConversationError, match="stopped"):
        await compacting
    await house.settled()
    assert house.models.open_streams == 0
    assert "and then" in str(said(house.models.requests[-1])[-1])
    assert finished(house)[-1] == (StopReason.END_TURN, None)


async def test_a_turn_whose_end_could_not_be_written_is_taken_up_by_the_next_message(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.start()
    cannot_end_once(monkeypatch)
    house.models.play(calls("once"), says("lost"), says("found"), says("second"))
    await house.say("one", "m1")
    await house.until_seen(seen.LoopFailed)
    await house.until(lambda: house.seen(seen.LoopFailed)[-1].terminal)  # type: ignore[attr-defined]
    assert finished(house) == []
    assert await house.say("two", "m2") == Accepted("queued")
    await house.settled()
    assert [reason for reason, _ in finished(house)] == [StopReason.END_TURN, StopReason.END_TURN]
    assert house.toolbox.ran == ["once"]
    assert said(house.models.requests[-1]) == [["one"], ["two"]]
    assert await house.say("three", "m3") == Accepted("started")
    await house.settled()


async def test_two_messages_at_once_take_such_a_turn_up_together(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    await house.start()
    cannot_end_once(monkeypatch)
    house.models.play(calls("once"), says("lost"), says("found"), says("second"), says("third"))
    await house.say("one", "m1")
    await house.until_seen(seen.LoopFailed)
    await house.until(lambda: house.seen(seen.LoopFailed)[-1].terminal)  # type: ignore[attr-defined]
    receipts = await asyncio.gather(house.say("two", "m2"), house.say("three", "m3"))
    assert receipts == [Accepted("queued"), Accepted("queued")]
    await house.settled()
    assert house.toolbox.ran == ["once"]
    assert "two" in str(said(house.models.requests[-1]))
    assert "three" in str(said(house.models.requests[-1]))


def cannot_end_once(monkeypatch: pytest.MonkeyPatch) -> None:
    end_turn, failed = records.end_turn, False

    def failing_once(*arguments: Any) -> None:
        nonlocal failed
        if not failed:
            failed = True
            raise StateConflict("a row is not as it should be")
        end_turn(*arguments)

    monkeypatch.setattr(records, "end_turn", failing_once)


async def test_a_message_removed_as_its_turn_begins_leaves_no_trace_of_a_turn(house: House) -> None:
    key = await house.start()
    gate = Gate()
    house.models.play([TextChunk("x"), gate, *says("y")])
    await house.say("one", "m1")
    await house.until(gate.reached.is_set)
    await house.say("two", "m2")
    write = house.database.write
    removed: list[bool] = []

    async def write_after_removal(fn: Callable[[sqlite3.Connection], Any]) -> Any:
        if house.seen(seen.TurnFinished) and not removed:
            removed.append(True)
            removed[0] = await house.conversations.remove_queued(key, QueueItemId("q-2"))
        return await write(fn)

    house.database.write = write_after_removal  # type: ignore[method-assign]
    gate.opened.set()
    await house.settled()
    assert removed == [True]
    open_turns = await house.database.read(
        lambda connection: connection.execute("SELECT turn_id FROM turns WHERE status = 'active'").fetchall()
    )
    assert open_turns == []
    assert len(house.models.requests) == 1
    assert finished(house) == [(StopReason.END_TURN, None)]
    assert house.seen(seen.LoopFailed) == []
