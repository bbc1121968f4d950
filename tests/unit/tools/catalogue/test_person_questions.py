"""What the agent may ask a person, and how their answers reach it."""

import json
from pathlib import Path

import pytest

from lodger_tools.box.contract import BoxKey
from lodger_tools.catalogue.person_questions import NO_ANSWER, answers_in_words, with_answers
from lodger_tools.json_value import JsonObject
from lodger_tools.output.overflow import OverflowFolder
from lodger_tools.permissions.core.judge import RuleSet, judge
from lodger_tools.permissions.core.modes import Mode
from lodger_tools.permissions.core.rules import parse_rule
from lodger_tools.permissions.core.verdicts import CallToJudge, Denied, NeedsPerson
from lodger_tools.toolbox import LodgerToolbox
from lodger_tools.toolbox_contract import ToolRequest

COLOUR: JsonObject = {
    "question": "Which colour?",
    "header": "Colour",
    "options": [{"label": "red"}, {"label": "blue", "description": "like the sea"}],
}
ASKED: JsonObject = {"questions": [COLOUR]}


@pytest.fixture
def toolbox(tmp_path: Path) -> LodgerToolbox:
    return LodgerToolbox(None, OverflowFolder(tmp_path), lambda _: {"TOKEN": "hunter2-hunter2"})  # type: ignore[arg-type]  # no box is needed


def check(toolbox: LodgerToolbox, arguments: JsonObject) -> JsonObject | str:
    return toolbox.check("AskUserQuestion", json.dumps(arguments))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "questions"),
        ({"questions": []}, "1 to 8"),
        ({"questions": ["x"]}, "must be an object"),
        ({"questions": [{"header": "x"}]}, "needs its text"),
        ({"questions": [{"question": "x", "options": "y"}]}, "options"),
        ({"questions": [{"question": "x", "options": [{"description": "y"}]}]}, "label"),
        ({"questions": [COLOUR, COLOUR]}, "same text"),
        ({**ASKED, "answers": {"Which colour?": "red"}}, "the person fills it in"),
    ],
)
def test_what_a_model_may_not_ask(toolbox: LodgerToolbox, arguments: JsonObject, words: str) -> None:
    assert words in str(check(toolbox, arguments))


def test_a_good_question_passes(toolbox: LodgerToolbox) -> None:
    assert check(toolbox, ASKED) == ASKED


async def test_answers_reach_the_model_in_words_without_a_box_and_redacted(toolbox: LodgerToolbox) -> None:
    given = with_answers(ASKED, {"Which colour?": ["red", "hunter2-hunter2"], "Colour": "dark"})
    assert isinstance(given, dict)
    outcome = await toolbox.run(ToolRequest("k", "AskUserQuestion", given, BoxKey("agent-1", "/work"), "/work"))
    assert outcome.status == "success"
    assert outcome.text == "The person answered:\nWhich colour?\n  red, TOKEN=<REDACTED>\nColour\n  dark"


def test_no_answer_says_so() -> None:
    assert answers_in_words(ASKED) == NO_ANSWER
    assert with_answers(ASKED, None) == ASKED
    assert "(no answer)" in answers_in_words({**ASKED, "answers": {"Which colour?": ""}})


@pytest.mark.parametrize("answers", ["red", ["red"], {"a": 1}, {"a": [1]}, {"a": "x" * 20_001}])
def test_answers_of_another_shape_are_refused(answers: object) -> None:
    assert isinstance(with_answers(ASKED, answers), str)  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", list(Mode))
def test_only_a_person_answers_whatever_the_mode_and_the_rules(mode: Mode) -> None:
    call = CallToJudge("AskUserQuestion", ASKED, "/work", "/work", None)
    allowed = RuleSet(allow=(parse_rule("AskUserQuestion"),))
    assert isinstance(judge(call, allowed, mode, "/home/ada"), NeedsPerson)
    assert isinstance(judge(call, RuleSet(deny=(parse_rule("Ask*"),)), mode, "/home/ada"), Denied)
