"""Sessions before the rules: a command under another name, and what is typed into one."""

import pytest

from lodger_tools.json_value import JsonObject
from lodger_tools.permissions.core.judge import RuleSet, judge
from lodger_tools.permissions.core.modes import Mode
from lodger_tools.permissions.core.reach import reach_of
from lodger_tools.permissions.core.rules import parse_rule
from lodger_tools.permissions.core.verdicts import Allowed, CallToJudge, Denied, NeedsPerson, Verdict

DENY = RuleSet(deny=(parse_rule("Bash(git push:*)"),))
HOME = "/home/person"


def call(tool: str, arguments: JsonObject) -> CallToJudge:
    return CallToJudge(tool, arguments, "/w", "/w", None)


def judged(tool: str, arguments: JsonObject, rules: RuleSet = DENY, mode: Mode = Mode.STANDARD) -> Verdict:
    return judge(call(tool, arguments), rules, mode, HOME)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("exec_command", {"cmd": "git push --force"}),
        ("write_stdin", {"session_id": 1, "chars": "git push --force\n"}),
        ("write_stdin", {"session_id": 1, "chars": "ls\ngit push\n"}),
    ],
)
def test_rules_for_commands_hold_under_every_name(tool: str, arguments: JsonObject) -> None:
    assert isinstance(judged(tool, arguments), Denied)
    assert isinstance(judged(tool, arguments, RuleSet()), Allowed)
    assert isinstance(judged(tool, arguments, RuleSet(), Mode.STRICT), NeedsPerson)
    assert isinstance(judged(tool, arguments, RuleSet(deny=(parse_rule("Bash"),))), Denied)
    assert isinstance(judged(tool, arguments, RuleSet(deny=(parse_rule(tool),))), Denied)


def test_a_command_typed_in_two_parts_gets_past_no_rule() -> None:
    for part in ("git pu", "git push"):
        assert not isinstance(judged("write_stdin", {"session_id": 1, "chars": part}), Allowed)
    assert isinstance(judged("write_stdin", {"session_id": 1, "chars": "y"}, RuleSet()), Allowed)


def test_only_to_look_needs_nobody() -> None:
    for arguments in ({"session_id": 1}, {"session_id": 1, "chars": ""}):
        assert isinstance(judged("write_stdin", arguments, RuleSet(), Mode.STRICT), Allowed)


def test_another_folder_is_asked_for_as_with_the_shell_tool() -> None:
    outside = call("exec_command", {"cmd": "ls", "workdir": "/elsewhere"})
    assert reach_of(outside, HOME).folder == "/elsewhere"
    assert isinstance(judge(outside, RuleSet(), Mode.STANDARD, HOME), NeedsPerson)
    inside = call("exec_command", {"cmd": "ls", "workdir": "sub"})
    assert reach_of(inside, HOME).inside
