"""The agent's own questions to the person, with the real tool and the real rules; no box is needed for them."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lodger_daemon.identity import QuestionId
from lodger_daemon.models.contract import FinishReason, ToolCallChunk, Usage
from lodger_daemon.models.contract import StepEnded as ModelStepEnded
from lodger_daemon.turns.contract import Allow, Deny
from lodger_daemon.turns.core import events as seen
from lodger_tools.json_value import JsonObject
from lodger_tools.output.overflow import OverflowFolder
from lodger_tools.permissions.core.judge import RuleSet, judge
from lodger_tools.permissions.core.modes import Mode
from lodger_tools.permissions.core.verdicts import CallToJudge, Verdict
from lodger_tools.toolbox import LodgerToolbox
from support.turn_parts import House, Scripted, ScriptedJudge, says

QUESTION = QuestionId("perm-c1")
ASKED: JsonObject = {"questions": [{"question": "Which colour?", "options": [{"label": "red"}, {"label": "blue"}]}]}


class RealRules(ScriptedJudge):
    def judge(self, call: CallToJudge, mode: Mode) -> Verdict:
        return judge(call, RuleSet(), mode, "/home/ada")


class NoBoxes:
    """None is needed, and none may be used."""


def asks(arguments: JsonObject) -> list[Scripted]:
    call = ToolCallChunk(0, "c1", "AskUserQuestion", json.dumps(arguments))
    return [call, ModelStepEnded(FinishReason.TOOL_CALLS, Usage(prompt=10, completion=2))]


def last_result(house: House) -> str:
    return str(house.models.requests[-1].messages[-1])


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    house = House(tmp_path)
    house.toolbox = LodgerToolbox(NoBoxes(), OverflowFolder(tmp_path / "overflow"))  # type: ignore[assignment,arg-type]
    house.judge = RealRules()
    await house.start()
    yield house
    await house.close()


async def asked(house: House) -> seen.QuestionAsked:
    house.models.play(asks(ASKED), says("thank you"))
    await house.say("go", "m1")
    [question] = await house.until_seen(seen.QuestionAsked)
    assert isinstance(question, seen.QuestionAsked)
    return question


@pytest.mark.parametrize("mode", [Mode.STANDARD, Mode.UNRESTRICTED])
async def test_it_is_asked_in_every_mode_and_the_answer_reaches_the_model(house: House, mode: Mode) -> None:
    await house.conversations.change_state(house.key, mode, None)
    question = await asked(house)
    assert (question.tool_name, question.input) == ("AskUserQuestion", ASKED)
    assert (question.suggestions, question.previews) == ((), ())
    given = Allow(updated_input={**ASKED, "answers": {"Which colour?": "blue"}})
    assert await house.conversations.answer(house.key, QUESTION, given)
    await house.settled()
    assert "blue" in last_result(house)


async def test_it_is_presented_again_after_a_restart_and_answered_then(house: House) -> None:
    before = await asked(house)
    await house.crash()
    await house.restart()
    [again] = await house.until_seen(seen.QuestionAsked)
    assert again == before
    given = Allow(updated_input={**ASKED, "answers": {"Which colour?": "red"}})
    assert await house.conversations.answer(house.key, QUESTION, given)
    await house.settled()
    assert "red" in last_result(house)


async def test_an_answer_just_before_a_crash_is_not_asked_for_again(house: House) -> None:
    await asked(house)
    given = Allow(updated_input={**ASKED, "answers": {"Which colour?": "red"}})
    assert await house.book.settle(house.key, QUESTION, given) is not None
    await house.crash()
    await house.restart()
    await house.settled()
    assert "red" in last_result(house)
    assert house.seen(seen.QuestionAsked) == []


async def test_without_an_answer_the_model_is_told(house: House) -> None:
    await asked(house)
    assert await house.conversations.answer(house.key, QUESTION, Allow())
    await house.settled()
    assert "The person gave no answer" in last_result(house)


async def test_a_person_may_decline(house: House) -> None:
    await asked(house)
    assert await house.conversations.answer(house.key, QUESTION, Deny("you decide"))
    await house.settled()
    assert "you decide" in last_result(house)


async def test_answers_of_another_shape_are_denied_in_words(house: House) -> None:
    await asked(house)
    assert await house.conversations.answer(house.key, QUESTION, Allow(updated_input={**ASKED, "answers": ["red"]}))
    await house.settled()
    assert "must be an object" in last_result(house)


async def test_a_model_cannot_answer_for_the_person(house: House) -> None:
    house.models.play(asks({**ASKED, "answers": {"Which colour?": "blue"}}), says("well"))
    await house.say("go", "m1")
    await house.settled()
    assert house.seen(seen.QuestionAsked) == []
    assert "the person fills it in" in last_result(house)


async def test_a_client_that_cannot_show_it_is_not_asked(house: House) -> None:
    house.models.play(asks(ASKED), says("well"))
    await house.say("go", "m1", can_answer_questions=False)
    await house.settled()
    assert house.seen(seen.QuestionAsked) == []
    assert "cannot answer questions" in last_result(house)


async def test_a_client_may_leave_the_tool_out(house: House) -> None:
    house.models.play(asks(ASKED), says("well"))
    await house.say("go", "m1", offer_questions=False)
    await house.settled()
    offered = [tool.name for tool in house.models.requests[0].tools]
    assert "AskUserQuestion" not in offered and "Bash" in offered
    assert house.seen(seen.QuestionAsked) == []
    assert "no tool named AskUserQuestion" in last_result(house)
