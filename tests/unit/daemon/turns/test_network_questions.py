"""A program in a box wants out while a turn works there: the person is asked, and their word holds once."""

import asyncio
import contextlib
import json
from dataclasses import replace

import pytest

from lodger_daemon.identity import ToolCallId
from lodger_daemon.models.contract import FinishReason, StepEnded, ToolCallChunk, Usage
from lodger_daemon.network.contract import WorkInBox
from lodger_daemon.service.persons_hosts import PersonsHosts
from lodger_daemon.service.settings import load_settings
from lodger_daemon.service.settings_file import SettingsFile
from lodger_daemon.turns.contract import Allow, Deny, StartRuntime
from lodger_daemon.turns.core import events as seen
from lodger_daemon.turns.core.own_questions import OwnQuestion
from lodger_sandbox.egress.core.allow import AllowList
from lodger_tools.box.contract import BoxKey, BoxProfile
from lodger_tools.json_value import JsonObject
from lodger_tools.toolbox_contract import ToolOutcome
from support.turn_parts import Gate, House, calls, says

A, B = "example.org:443", "example.net:443"
Asking = asyncio.Task[frozenset[str] | None]


def box(house: House) -> BoxKey:
    return BoxKey(house.key.agent_id, str(house.folder))


async def call_runs(house: House, **options: object) -> Gate:
    """A call that waits for its network, until the gate opens."""
    await house.start()
    house.models.play(calls("fetch"), says("done"))
    gate = house.toolbox.gates["fetch"] = Gate()
    await house.say("go", "m1", **options)
    await gate.reached.wait()
    return gate


def ask(house: House, *hosts: str) -> Asking:
    return asyncio.create_task(house.conversations.network_asker.ask_about_hosts(box(house), hosts or (A, B)))


async def asked(house: House, count: int = 1) -> seen.QuestionAsked:
    question = (await house.until_seen(seen.QuestionAsked, count))[-1]
    assert isinstance(question, seen.QuestionAsked)
    return question


def settled_as(house: House) -> list[str]:
    return [event.outcome for event in house.events if isinstance(event, seen.QuestionSettled)]


async def test_a_person_is_asked_while_the_call_runs_and_the_call_goes_on(house: House) -> None:
    gate = await call_runs(house)
    asking = ask(house)
    question = await asked(house)
    assert (question.tool_name, question.input) == (OwnQuestion.HOSTS, {"hosts": [A, B]})
    assert A in question.reason and question.suggestions == ()
    snapshot = await house.conversations.snapshot(house.key)
    assert snapshot.questions == (question,)
    assert snapshot.loop.status is seen.LoopStatus.WAITING_ON_APPROVAL
    assert await house.conversations.answer(house.key, question.question_id, Allow())
    assert not await house.conversations.answer(house.key, question.question_id, Deny(""))
    assert await asking == {A, B}
    snapshot = await house.conversations.snapshot(house.key)
    assert snapshot.questions == ()
    assert (snapshot.loop.status, snapshot.loop.executing) == (seen.LoopStatus.EXECUTING_CLIENT_SIDE_TOOL, ("c1",))
    gate.opened.set()
    await house.settled()
    assert house.toolbox.ended == ["fetch"]
    assert settled_as(house) == ["allowed"]


@pytest.mark.parametrize(
    ("answer", "allowed"),
    [
        (Deny("no"), set()),
        (Allow(updated_input={"hosts": [B, "elsewhere.test:443"]}), {B}),
        (Allow(updated_input={"hosts": A}), set()),
        (Allow(updated_input={}), set()),
    ],
)
async def test_what_a_person_does_not_allow_is_not_allowed(
    house: House, answer: Allow | Deny, allowed: set[str]
) -> None:
    gate = await call_runs(house)
    asking = ask(house)
    await house.conversations.answer(house.key, (await asked(house)).question_id, answer)
    assert await asking == allowed
    gate.opened.set()


async def test_nobody_is_asked_for_a_client_that_cannot_answer_or_without_a_turn(house: House) -> None:
    gate = await call_runs(house, can_answer_questions=False)
    assert not house.conversations.network_asker.can_ask(box(house))
    assert await ask(house) is None
    gate.opened.set()
    await house.settled()
    assert not house.conversations.network_asker.can_ask(box(house))
    assert house.seen(seen.QuestionAsked) == []


async def test_always_is_written_into_the_settings_and_holds(house: House) -> None:
    file = SettingsFile(house.folder / "config" / "settings.toml")
    lists: list[AllowList] = []
    house.hosts = PersonsHosts(file, file.load(), lists.append)
    gate = await call_runs(house)
    asking = ask(house)
    question = await asked(house)
    always = [suggestion.id for suggestion in question.suggestions]
    assert len(always) == 2
    await house.conversations.answer(house.key, question.question_id, Allow(suggestion_ids=(always[0],)))
    assert await asking == {A, B}
    assert load_settings(house.folder / "config" / "settings.toml").network.allow == (A,)
    assert [str(entry) for entry in lists[-1].entries] == [A]
    gate.opened.set()


async def test_a_machine_with_a_ceiling_offers_no_always_and_takes_none(house: House) -> None:
    """A12: what a client adds would hold above the ceiling."""
    path = house.folder / "config" / "settings.toml"
    path.parent.mkdir()
    path.write_text('[permissions]\nceiling = "standard"\n')
    file = SettingsFile(path)
    house.hosts = PersonsHosts(file, file.load(), lambda _: None)
    gate = await call_runs(house)
    asking = ask(house)
    question = await asked(house)
    assert question.suggestions == ()
    await house.conversations.answer(house.key, question.question_id, Allow(suggestion_ids=(f"always-{A}",)))
    assert await asking == {A, B}
    assert load_settings(path).network.allow == ()
    assert [event for event in house.events if isinstance(event, seen.StatusNote)]
    gate.opened.set()


async def test_a_question_is_taken_back_when_nobody_waits_any_more(house: House) -> None:
    gate = await call_runs(house)
    asking = ask(house)
    question = await asked(house)
    asking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asking
    assert settled_as(house) == ["withdrawn"]
    assert not await house.conversations.answer(house.key, question.question_id, Allow())
    gate.opened.set()
    await house.settled()


async def test_an_interrupted_turn_takes_its_question_back(house: House) -> None:
    await call_runs(house)
    asking = ask(house)
    await asked(house)
    await house.conversations.abort(house.key)
    assert (await house.conversations.snapshot(house.key)).questions == ()
    assert await asking is None
    await house.settled()
    assert settled_as(house) == ["withdrawn"]


async def test_a_question_of_what_a_call_left_behind_ends_with_the_turn(house: House) -> None:
    gate = await call_runs(house)
    asking = ask(house)
    await asked(house)
    gate.opened.set()
    assert await asking is None
    await house.settled()
    assert settled_as(house) == ["withdrawn"]
    assert house.book.count() == 0


async def test_nobody_answers(house: House) -> None:
    gate = await call_runs(house)
    asking = ask(house)
    await asked(house)
    await house.until(lambda: house.clock.sleeping > 0)
    house.clock.advance(30.0)
    await house.until(lambda: house.clock.sleeping > 0 or asking.done())
    assert await asking is None
    assert settled_as(house) == ["expired"]
    gate.opened.set()


async def after_a_restart(house: House) -> seen.QuestionAsked:
    """The call still runs in its box; the broker has not asked again yet."""
    await call_runs(house)
    asking = ask(house)
    question = await asked(house)
    await house.crash()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    collecting = house.toolbox.collect_gates["fetch"] = Gate()
    house.toolbox.collectable["fetch"] = ToolOutcome("success", "fetched")
    await house.restart()
    await collecting.reached.wait()
    return question


async def test_a_question_survives_a_restart_and_is_asked_under_its_name(house: House) -> None:
    question = await after_a_restart(house)
    asking = ask(house)
    assert await asked(house) == question
    await house.conversations.answer(house.key, question.question_id, Allow())
    assert await asking == {A, B}
    assert house.book.count() == 0


async def test_an_answer_that_is_quicker_than_the_broker_holds_for_what_it_was_about(house: House) -> None:
    question = await after_a_restart(house)
    assert await house.conversations.answer(house.key, question.question_id, Allow())
    other = ask(house, "other.test:443")
    assert (await asked(house)).input == {"hosts": ["other.test:443"]}
    assert await ask(house) == {A, B}
    other.cancel()
    await asyncio.gather(other, return_exceptions=True)


async def test_what_works_in_a_box_is_known_by_turn_run_and_call(house: House) -> None:
    gate = await call_runs(house)
    run_id, turn_id = await house.database.read(
        lambda connection: connection.execute("SELECT run_id, turn_id FROM runs").fetchone()
    )
    work_in = house.conversations.network_asker.work_in
    assert work_in(box(house)) == (WorkInBox(house.key, turn_id, run_id, (ToolCallId("c1"),)),)
    assert work_in(replace(box(house), workspace="/elsewhere")) == ()
    assert work_in(replace(box(house), agent_id="agent-other")) == ()
    gate.opened.set()
    await house.settled()
    assert work_in(box(house)) == ()


async def test_a_call_that_was_let_into_another_folder_is_known_there(house: House) -> None:
    await house.start()
    reading: JsonObject = {"command": "far", "file_path": "/elsewhere/notes.md"}
    far = [ToolCallChunk(0, "c1", "Read", json.dumps(reading)), StepEnded(FinishReason.TOOL_CALLS, Usage())]
    house.models.play(far, says("done"))
    gate = house.toolbox.gates["far"] = Gate()
    await house.say("go", "m1")
    await gate.reached.wait()
    work_in = house.conversations.network_asker.work_in
    there = BoxKey(house.key.agent_id, "/elsewhere", BoxProfile.READ_ONLY)
    assert [work.calls for work in work_in(there)] == [("c1",)]
    # Of what earlier calls of this turn left running in its own box nothing is known but the turn.
    assert [work.calls for work in work_in(box(house))] == [()]
    gate.opened.set()


async def test_a_call_that_a_restarted_daemon_waits_for_is_known(house: House) -> None:
    await after_a_restart(house)
    [work] = house.conversations.network_asker.work_in(box(house))
    assert work.calls == ("c1",)
    assert work.turn_id is not None


def notes(house: House) -> list[str]:
    return [event.message for event in house.events if isinstance(event, seen.StatusNote)]


async def test_what_is_refused_without_a_turn_is_told_where_the_last_turn_worked(house: House) -> None:
    gate = await call_runs(house, can_answer_questions=False)
    tell = house.conversations.network_asker.tell
    assert not tell(box(house), "amid the turn")
    gate.opened.set()
    await house.settled()
    assert not tell(replace(box(house), workspace="/elsewhere"), "of another box")
    assert not tell(replace(box(house), agent_id="agent-other"), "of another agent")
    assert notes(house) == []
    assert tell(box(house), "without a turn")
    # Another conversation of the agent works in the same box: what was refused is in its results.
    first = house.key
    house.key = (await house.conversations.start_runtime(StartRuntime(agent_id=first.agent_id))).key
    house.models.play(calls("other"), says("done"))
    other = house.toolbox.gates["other"] = Gate()
    await house.say("go", "m2", can_answer_questions=False)
    await other.reached.wait()
    assert not tell(box(house), "amid the other's turn")
    other.opened.set()
    await house.settled()
    assert notes(house) == ["without a turn"]
