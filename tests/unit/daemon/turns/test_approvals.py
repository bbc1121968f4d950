"""Approvals within a turn: asked, answered, denied, judged again, and nobody there to answer."""

import asyncio
import json
from pathlib import Path

import pytest

from lodger_daemon.identity import QuestionId
from lodger_daemon.turns.contract import (
    Allow,
    ConversationError,
    Deny,
)
from lodger_daemon.turns.core import events as seen
from lodger_daemon.turns.core.stop_reasons import StopReason
from lodger_daemon.turns.services import TurnOptions
from lodger_tools.permissions.core.modes import Mode
from support.turn_parts import Gate, House, calls, says
from support.turn_reading import finished, results


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
