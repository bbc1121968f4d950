"""What the guard of a repository put back is asked about while its call waits."""

import asyncio

import pytest

from lodger_daemon.turns.contract import Allow, Answer, Deny
from lodger_daemon.turns.core import events as seen
from lodger_daemon.turns.core.own_questions import OwnQuestion
from lodger_tools.box.contract import BoxKey
from support.turn_parts import Gate, House, calls, says

CHANGES = {"core.hookspath": ".husky"}


async def call_runs(house: House, **options: object) -> Gate:
    await house.start()
    house.models.play(calls("commit"), says("done"))
    gate = house.toolbox.gates["commit"] = Gate()
    await house.say("go", "m1", **options)
    await gate.reached.wait()
    return gate


def ask(house: House) -> "asyncio.Task[bool | None]":
    box = BoxKey(house.key.agent_id, str(house.folder))
    return asyncio.create_task(house.conversations.git_asker.ask_about_git(box, CHANGES))


@pytest.mark.parametrize(
    ("answer", "allowed"),
    [
        (Allow(), True),
        (Deny("no"), False),
        (Allow(updated_input={"settings": {"core.hookspath": "elsewhere"}}), False),
    ],
)
async def test_a_person_brings_it_in_again_as_it_was_or_not_at_all(house: House, answer: Answer, allowed: bool) -> None:
    gate = await call_runs(house)
    asking = ask(house)
    question = (await house.until_seen(seen.QuestionAsked, 1))[-1]
    assert isinstance(question, seen.QuestionAsked)
    assert question.tool_name == OwnQuestion.GIT
    assert question.input == {"workspace": str(house.folder), "settings": CHANGES}
    assert "core.hookspath" in question.reason
    await house.conversations.answer(house.key, question.question_id, answer)
    assert await asking is allowed
    gate.opened.set()
    await house.settled()


async def test_nobody_is_asked_for_a_client_that_cannot_answer(house: House) -> None:
    gate = await call_runs(house, can_answer_questions=False)
    assert await ask(house) is None
    gate.opened.set()
    await house.settled()
