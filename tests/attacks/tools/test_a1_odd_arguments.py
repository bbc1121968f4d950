"""A1 and its neighbours: what is judged is what runs, and an odd spelling is no way around a rule."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lodger_tools.box.contract import BoxUnavailable
from lodger_tools.catalogue.arguments import parse_arguments
from lodger_tools.output.overflow import OverflowFolder
from lodger_tools.permissions.core import judge as judging
from lodger_tools.permissions.core.judge import RuleSet
from lodger_tools.permissions.core.modes import Mode
from lodger_tools.permissions.core.rules import parse_rule
from lodger_tools.permissions.core.shell import COMMAND_LIMIT_BYTES
from lodger_tools.permissions.core.verdicts import Allowed, CallToJudge, Denied
from lodger_tools.toolbox import LodgerToolbox

HOME, WORKSPACE = "/home/ada", "/home/ada/project"
NO_RM = RuleSet(deny=(parse_rule("Bash(rm:*)"),), allow=(parse_rule("Bash"),))

UNREADABLE = {
    "padded": "rm -r x # " + "." * COMMAND_LIMIT_BYTES,
    "half-surrogate": "rm -r x # \udc80",
    "variable": "x=rm; $x -r x",
    "substitution": "$(echo rm) -r x",
    "back-quotes": "`echo rm` -r x",
    "expansion": "r${nothing}m -r x",
    "escapes": "$'\\x72m' -r x",
    "broken": "rm -r x; if",
    "behind-a-wrapper": "env $x -r x",
    "in-a-shell": "bash -c 'x=rm; $x -r x'",
    "in-a-shell-by-variable": 'sh -c "$x"',
    "evaluated": 'eval "$x"',
    "split-by-env": 'env -S "$x"',
    "touching": "'r'\\m -r x",
    "joined-lines": "r\\\nm -r x",
    "joined-lines-in-quotes": '"r\\\nm" -r x',
}
READABLE = {
    "plain-dollar-quotes": "$'rm' -r x",
    "split-quotes": "r'm' -r x",
    "shell-options": "bash -lc 'rm -r x'",
    "bundled": "sh -ec 'true; rm -r x'",
    "path": "/usr/bin/../bin/rm -r x",
    "eval": "eval 'rm -r x'",
    "env-split": "env -S 'rm -r x'",
    "env-split-attached": "env -S'rm -r' x",
    "env-split-bundled": "env -iS 'rm -r x'",
    "env-split-long": "env --split-string='rm -r x'",
    "shell-in-shell": "bash -c \"sh -c 'rm -r x'\"",
    "su": "su ada -c 'rm -r x'",
    "flock": "flock lock rm -r x",
    "watch": "watch -n 1 rm -r x",
    "find": "find . -name a -exec rm -r {} ';'",
    "find-env": "find . -exec /bin/rm -r {} +",
    "xargs": "echo x | xargs -n 1 rm -r",
    "wrapper": "env -i nice -n 5 rm -r x",
}


def verdict(command: str, mode: Mode) -> type:
    call = CallToJudge("Bash", {"command": command}, WORKSPACE, WORKSPACE, None)
    return type(judging.judge(call, NO_RM, mode, HOME))


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("command", UNREADABLE.values(), ids=list(UNREADABLE))
def test_what_cannot_be_read_never_runs_past_a_deny_rule(command: str, mode: Mode) -> None:
    assert verdict(command, mode) is not Allowed


@pytest.mark.parametrize("command", UNREADABLE.values(), ids=list(UNREADABLE))
def test_control_without_that_look_it_would_run(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RuleSet, "restrict_commands", lambda _: False)
    read = verdict(command, Mode.STANDARD)
    assert read is (Denied if command == UNREADABLE["broken"] else Allowed)


@pytest.mark.parametrize("command", READABLE.values(), ids=list(READABLE))
def test_what_can_be_read_is_denied(command: str) -> None:
    assert verdict(command, Mode.UNRESTRICTED) is Denied


def test_ordinary_scripts_do_not_ask_because_some_rule_looks_at_commands() -> None:
    for command in ("for f in *.txt; do wc -l $f; done", 'make -j "$(nproc)"', "FOO=1 ./run.sh > out", "cat <<E\nx\nE"):
        assert verdict(command, Mode.STANDARD) is Allowed, command


def nested(depth: int) -> str:
    return '{"command": "true", "x": ' + "[" * depth + "]" * depth + "}"


NO_JSON = {
    "not-a-number": '{"command": "true", "x": NaN}',
    "infinity": '{"command": "true", "x": [-Infinity]}',
    "too-large": '{"command": "true", "x": 1e999}',
    "nested-500": nested(500),
    "nested-just-below-the-parsers-limit": nested(950),
    "nested-far-beyond": nested(100_000),
    "digits": '{"command": "true", "x": ' + "9" * 5000 + "}",
}


class NoBoxes:
    async def run(self, *_: object) -> None:
        raise BoxUnavailable("none here")


@pytest.mark.parametrize("text", NO_JSON.values(), ids=list(NO_JSON))
def test_what_later_readers_would_stumble_over_is_refused_before_it_is_judged(text: str, tmp_path: object) -> None:
    toolbox = LodgerToolbox(NoBoxes(), OverflowFolder(tmp_path, None))  # type: ignore[arg-type]
    answer = toolbox.check("Bash", text)
    assert isinstance(answer, str)
    assert "not valid JSON" in answer


def test_control_pythons_own_parser_takes_them() -> None:
    assert math.isnan(json.loads(NO_JSON["not-a-number"])["x"])
    assert math.isinf(json.loads(NO_JSON["too-large"])["x"])
    assert json.loads(NO_JSON["nested-500"])["command"] == "true"


def test_of_two_equal_names_the_last_is_judged_and_run() -> None:
    assert parse_arguments('{"command": "rm x", "command": "ls"}') == {"command": "ls"}


CHARACTER = st.sampled_from(["{}", "'{}'", '"{}"', "\\{}", "$'{}'", '$"{}"'])
NOTHING = st.sampled_from(["", "''", '""', "\\\n", "$''", '$""', "${x}", "$(:)", "``"])
BEFORE = st.sampled_from(
    ["", "env ", "\\env ", "true && ", "true | ", "! ", "{ ", "( ", "x=1 ", "time ", "command -- ", "if "]
)


@settings(max_examples=400, deadline=None)
@given(BEFORE, NOTHING, CHARACTER, NOTHING, CHARACTER, NOTHING)
def test_a1_no_spelling_of_a_denied_program_runs(before: str, a: str, r: str, b: str, m: str, c: str) -> None:
    command = f"{before}{a}{r.format('r')}{b}{m.format('m')}{c} -r x"
    assert verdict(command, Mode.STANDARD) is not Allowed
