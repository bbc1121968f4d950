"""A9, A11: what says nothing of itself asks; an approval is for one call as it stood, not for what it becomes."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lodger_daemon.identity import QuestionId
from lodger_daemon.turns.contract import Allow
from lodger_daemon.turns.core import events as seen
from lodger_tools.box.contract import PinnedFile
from lodger_tools.permissions.core.judge import RuleSet, judge
from lodger_tools.permissions.core.modes import Mode
from lodger_tools.permissions.core.verdicts import CallToJudge, NeedsPerson
from lodger_tools.toolbox_contract import Scheduling
from support.turn_parts import House, calls, says
from support.wire_client import Frame, WireHouse

FIRST = QuestionId("perm-c1")


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    house = House(tmp_path)
    yield house
    await house.close()


@pytest.mark.parametrize("mode", [Mode.STRICT, Mode.STANDARD, Mode.ACCEPT_EDITS])
@pytest.mark.parametrize("name", ["send_mail", "mcp__files__read", "readOnly", "Reader", "read", "bash", "Bash2"])
def test_a9_a_tool_nobody_here_knows_asks_and_offers_no_standing_rule(mode: Mode, name: str) -> None:
    call = CallToJudge(name, {"to": "x", "readOnlyHint": True}, "/work", "/work", None)
    answer = judge(call, RuleSet(), mode, "/home/ada")
    assert isinstance(answer, NeedsPerson) and answer.suggestions == ()


async def test_a9_a_clients_tool_is_a_writer_whatever_it_says_of_itself(house: House) -> None:
    wire = WireHouse(house)
    await house.start()
    wire.serve()
    client = wire.client()
    hints = {"readOnlyHint": True, "destructiveHint": False, "parallel": True}
    tools = [
        {"name": "plain", "description": "", "parameters": {"type": "object"}},
        {"name": "hinted", "description": "", "parameters": {"type": "object"}, "annotations": hints, **hints},
    ]
    frame: Frame = {"type": "runtime_start", "request_id": "rs", "agent_id": str(house.key.agent_id)}
    await client.ask({**frame, "conversation_id": "default", "external_tools": [{"tools": tools}]})
    brought = wire.tools.tools(house.key)
    assert [(tool.name, tool.scheduling) for tool in brought] == [
        ("plain", Scheduling.BARRIER),
        ("hinted", Scheduling.BARRIER),
    ]
    await wire.router.aclose()


async def allowed_once(house: House, command: str) -> None:
    await house.start()
    house.models.play(calls(command), says("done"))
    await house.say("go", "m1")
    await house.until_seen(seen.QuestionAsked)
    assert await house.conversations.answer(house.key, FIRST, Allow())
    await house.settled()
    assert house.toolbox.ran == [command]


async def test_a11_the_same_call_asks_again_the_next_time(house: House) -> None:
    await allowed_once(house, "ask hook.sh")
    house.models.play(calls("ask hook.sh"), says("done"))
    await house.say("again", "m2")
    await house.until_seen(seen.QuestionAsked, 2)
    assert house.toolbox.ran == ["ask hook.sh"]


async def test_a11_an_answer_is_no_answer_for_other_arguments_of_the_same_call_id(house: House) -> None:
    await allowed_once(house, "ask one")
    house.models.play(calls("ask two"), says("done"))
    await house.say("again", "m2")
    await house.until_seen(seen.QuestionAsked, 2)
    assert house.toolbox.ran == ["ask one"]


async def test_a11_what_was_approved_is_pinned_by_its_hash_each_time_anew(house: House) -> None:
    house.toolbox.pins["ask hook.sh"] = (PinnedFile("hook.sh", "1" * 64),)
    await allowed_once(house, "ask hook.sh")
    house.toolbox.pins["ask hook.sh"] = (PinnedFile("hook.sh", "2" * 64),)
    house.models.play(calls("ask hook.sh"), says("done"))
    await house.say("again", "m2")
    await house.until_seen(seen.QuestionAsked, 2)
    assert await house.conversations.answer(house.key, FIRST, Allow())
    await house.settled()
    assert [files[0].mark[0] for files in house.toolbox.pinned] == ["1", "2"], "the old hash is good for nothing now"


async def test_a11_a_rule_that_is_gone_asks_again_before_the_call_runs(house: House) -> None:
    """The person's rules file changed between the verdict and the run."""
    await house.start()
    house.models.play(calls("ask a", "ask b"), says("done"))
    await house.say("go", "m1")
    await house.until_seen(seen.QuestionAsked)
    assert await house.conversations.answer(house.key, FIRST, Allow(suggestion_ids=("save-default",)))
    house.judge.saved.clear()
    await house.until_seen(seen.QuestionAsked, 2)
    assert "ask b" not in house.toolbox.ran
