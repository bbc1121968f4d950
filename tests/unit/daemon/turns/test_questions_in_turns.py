"""Questions of a turn over a real database: together, bound to files, one effect from wherever, all of it on record."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from lodger_daemon.identity import AgentId, ConversationId, ConversationKey, QuestionId
from lodger_daemon.store import audit_rows
from lodger_daemon.store.errors import StoreFull
from lodger_daemon.turns.contract import Allow, Deny
from lodger_daemon.turns.core import events as seen
from lodger_daemon.turns.core.stop_reasons import StopReason
from lodger_daemon.turns.desk import STORE_RETRY_S
from lodger_tools.box.contract import PinnedFile
from lodger_tools.json_value import JsonObject
from lodger_tools.permissions.core.modes import Mode
from support.turn_parts import Gate, House, calls, says

FIRST, SECOND = QuestionId("perm-c1"), QuestionId("perm-c2")
RULE = Allow(suggestion_ids=("save-default",))


async def asked(house: House, *commands: str, together: bool = False) -> ConversationKey:
    """A turn that waits for answers about these commands."""
    key = await house.start()
    house.models.play(calls(*commands), says("done"))
    await house.say("go", "m1", ask_together=together)
    await house.until_seen(seen.QuestionAsked, len(commands) if together else 1)
    return key


async def audited(house: House) -> list[tuple[str, str, str, object, object]]:
    """Actor, action, subject, rule and reason of every decision, oldest first."""
    rows = await house.database.read(audit_rows.newest)
    return [(r.actor, r.action, r.subject, r.detail.get("rule"), r.detail.get("reason")) for r in reversed(rows)]


async def test_a_client_that_can_is_asked_all_at_once(house: House) -> None:
    key = await asked(house, "ask a", "ask b", together=True)
    snapshot = await house.conversations.snapshot(key)
    assert [question.question_id for question in snapshot.questions] == [FIRST, SECOND]
    assert await house.conversations.answer(key, SECOND, Deny("no"))
    assert [q.question_id for q in (await house.conversations.snapshot(key)).questions] == [FIRST]
    assert await house.conversations.answer(key, FIRST, Allow())
    await house.settled()
    assert house.toolbox.ran == ["ask a"]
    assert len(house.seen(seen.QuestionAsked)) == 2


async def test_a_saved_rule_takes_back_the_open_questions_it_answers(house: House) -> None:
    key = await asked(house, "ask a", "ask b", together=True)
    assert await house.conversations.answer(key, FIRST, RULE)
    await house.settled()
    assert house.toolbox.ran == ["ask a", "ask b"]
    settled = [(e.question_id, e.outcome) for e in house.seen(seen.QuestionSettled)]  # type: ignore[attr-defined]
    assert settled == [(FIRST, "allowed"), (SECOND, "withdrawn")]
    assert not await house.conversations.answer(key, SECOND, Deny("too late"))


async def test_a_person_who_is_quicker_than_the_rule_decides(house: House) -> None:
    key = await asked(house, "ask a", "ask b", together=True)
    answers = [house.conversations.answer(key, FIRST, RULE), house.conversations.answer(key, SECOND, Deny("not this"))]
    assert await asyncio.gather(*answers) == [True, True]
    await house.settled()
    assert house.toolbox.ran == ["ask a"]


async def test_an_answer_stored_while_a_rule_takes_its_place_decides(house: House) -> None:
    """The moment between the commit of an answer and the turn hearing of it."""
    key = await asked(house, "ask a", "ask b", together=True)
    house.judge.path_rules = True
    gate = house.toolbox.path_gates["ask b"] = Gate()
    assert await house.conversations.answer(key, FIRST, RULE)
    await house.until(gate.reached.is_set)
    assert await house.book.settle(key, SECOND, Deny("not this")) is not None
    house.toolbox.path_gates.clear()
    gate.opened.set()
    await house.settled()
    assert house.toolbox.ran == ["ask a"]


async def test_open_questions_come_back_together_after_a_restart(tmp_path: Path) -> None:
    house = House(tmp_path)
    key = await asked(house, "ask a", "ask b", together=True)
    assert await house.conversations.answer(key, SECOND, Deny("no"))
    await house.crash()
    house.events.clear()
    await house.restart()
    [question] = await house.until_seen(seen.QuestionAsked)
    assert isinstance(question, seen.QuestionAsked) and question.question_id == FIRST
    assert await house.conversations.answer(key, FIRST, Allow())
    await house.settled()
    assert house.toolbox.ran == ["ask a"]
    await house.close()


async def test_a_question_that_a_wider_mode_made_needless_over_a_restart_is_taken_back(tmp_path: Path) -> None:
    house = House(tmp_path)
    key = await asked(house, "ask a")
    await house.conversations.change_state(key, Mode.UNRESTRICTED, None)
    await house.crash()
    house.events.clear()
    await house.restart()
    await house.settled()
    assert house.toolbox.ran == ["ask a"]
    assert [event.outcome for event in house.seen(seen.QuestionSettled)] == ["withdrawn"]  # type: ignore[attr-defined]
    [finished] = house.seen(seen.TurnFinished)
    assert isinstance(finished, seen.TurnFinished) and finished.stop_reason is StopReason.END_TURN
    await house.close()


async def test_r10_a_turn_stopped_at_a_question_on_a_full_disk_ends_when_there_is_space(tmp_path: Path) -> None:
    house = House(tmp_path)
    key = await asked(house, "ask a")
    withdraw = house.book.withdraw
    full, tried = True, asyncio.Event()

    async def on_full_disk(*arguments: Any) -> Any:
        if full:
            tried.set()
            raise StoreFull(tmp_path / "lodger.db")
        return await withdraw(*arguments)

    house.book.withdraw = on_full_disk  # type: ignore[method-assign]
    await house.conversations.abort(key)
    await tried.wait()
    await house.until(lambda: any("disk" in note.message for note in house.seen(seen.StatusNote)))  # type: ignore[attr-defined]
    full = False
    house.clock.advance(STORE_RETRY_S)
    house.models.play(says("Here again."))
    await house.say("Are you there?", "m2")
    await house.settled()
    finished = [event.stop_reason for event in house.seen(seen.TurnFinished)]  # type: ignore[attr-defined]
    assert finished == [StopReason.CANCELLED, StopReason.END_TURN]
    await house.close()


async def test_one_effect_from_wherever_it_is_answered(house: House) -> None:
    key = await asked(house, "ask a")
    elsewhere = ConversationKey(AgentId(key.agent_id), ConversationId("conv-other"))
    assert not await house.conversations.answer(key, QuestionId("perm-c9"), Allow())
    assert not await house.conversations.answer(
        (await house.conversations.create_conversation(elsewhere.agent_id, {})).key, FIRST, Allow()
    )
    both = await asyncio.gather(
        house.conversations.answer(key, FIRST, Deny("no"), "phone"), house.conversations.answer(key, FIRST, Allow())
    )
    assert both == [True, False]
    await house.settled()
    assert house.toolbox.ran == []
    assert not await house.conversations.answer(key, FIRST, Allow())


async def test_an_answer_after_abort_or_expiry_is_no_longer_pending(house: House) -> None:
    key = await asked(house, "ask a")
    await house.conversations.abort(key)
    await house.settled()
    assert not await house.conversations.answer(key, FIRST, Allow())
    house.models.scripts.clear()
    house.models.play(calls("ask b"), says("done"))
    await house.say("again", "m2")
    await house.until_seen(seen.QuestionAsked, 2)
    await house.until(lambda: house.clock.sleeping > 0)
    house.clock.advance(30 * 60 + 1)
    await house.settled()
    assert not await house.conversations.answer(key, FIRST, Allow())
    assert house.toolbox.ran == []


@pytest.mark.parametrize("changed", [{"wrong": 1}, {"command": "deny it"}])
async def test_changed_input_that_no_tool_can_use_or_a_rule_denies_is_stored_as_denied(
    house: House, changed: JsonObject
) -> None:
    key = await asked(house, "ask a")
    assert await house.conversations.answer(key, FIRST, Allow(updated_input=changed))
    await house.settled()
    assert house.toolbox.ran == []
    [settled] = house.seen(seen.QuestionSettled)
    assert isinstance(settled, seen.QuestionSettled) and settled.outcome == "denied"


async def test_a7_the_files_of_an_allowed_command_go_with_it_to_the_box(house: House) -> None:
    house.toolbox.pins = {"ask run.sh": (PinnedFile("run.sh", "1" * 64),), "ask b.sh": (PinnedFile("b.sh", "2" * 64),)}
    key = await asked(house, "ask run.sh")
    assert await house.conversations.answer(key, FIRST, Allow())
    await house.settled()
    house.models.play(calls("ask run.sh"), says("done"))
    await house.say("again", "m2")
    await house.until_seen(seen.QuestionAsked, 2)
    assert await house.conversations.answer(key, FIRST, Allow(updated_input={"command": "ask b.sh"}))
    await house.settled()
    assert house.toolbox.pinned == [(PinnedFile("run.sh", "1" * 64),), (PinnedFile("b.sh", "2" * 64),)]


async def test_a7_the_files_survive_a_restart_between_answer_and_run(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.toolbox.pins["ask run.sh"] = (PinnedFile("run.sh", "1" * 64),)
    key = await asked(house, "ask run.sh", "ask b")
    assert await house.conversations.answer(key, FIRST, Allow())
    await house.until_seen(seen.QuestionAsked, 2)
    await house.crash()
    house.toolbox.pins.clear()
    house.events.clear()
    await house.restart()
    await house.until_seen(seen.QuestionAsked)
    assert await house.conversations.answer(key, SECOND, Deny("no"))
    await house.settled()
    assert house.toolbox.pinned == [(PinnedFile("run.sh", "1" * 64),)]
    await house.close()


async def test_every_decision_is_on_record_with_who_why_and_which_rule(house: House) -> None:
    key = await asked(house, "go", "deny it", "ask a")
    assert await house.conversations.answer(key, QuestionId("perm-c3"), RULE, "phone")
    await house.settled()
    assert await audited(house) == [
        ("rules", "question.asked", "c3", None, "leaves the box"),
        ("phone", "question.allowed", "c3", None, None),
        ("client", "rule.saved", "Bash(ask:*)", None, None),
        ("rules", "call.refused", "c2", None, "a rule denies it"),
        ("rules", "call.allowed", "c1", None, "the box contains it"),
        ("person", "call.allowed", "c3", None, "the box contains it"),
    ]
    rows = await house.database.read(audit_rows.newest)
    assert not any("ask a" in json.dumps(row.detail) for row in rows), "arguments stand there as a digest only"


async def test_what_a_client_that_cannot_answer_was_refused_is_on_record(house: House) -> None:
    await house.start()
    house.models.play(calls("ask a"), says("then not"))
    await house.say("go", "m1", can_answer_questions=False)
    await house.settled()
    [(actor, action, subject, _, reason)] = await audited(house)
    assert (actor, action, subject) == ("nobody", "call.refused", "c1")
    assert "cannot answer questions" in str(reason)


async def test_a_turn_takes_no_more_steps_than_its_client_wished(house: House) -> None:
    await house.start()
    house.models.play(calls("one"), calls("two"), calls("three"), says("done"))
    await house.say("go", "m1", max_steps=2)
    await house.settled()
    [finished] = house.seen(seen.TurnFinished)
    assert isinstance(finished, seen.TurnFinished) and finished.stop_reason == "max_steps"
    assert house.toolbox.ran == ["one", "two"]


async def test_a_rule_about_paths_is_told_where_links_lead(house: House) -> None:
    await house.start()
    house.judge.path_rules = True
    house.toolbox.real_paths["go"] = "/secret"
    house.models.play(calls("go"), says("done"))
    await house.say("go", "m1")
    await house.settled()
    assert house.judge.real_paths == ["/secret", "/secret"], "before it is allowed, and again before it runs"
