"""A1, A2, A3: what was allowed once by its words lets nothing else pass, and means to the shell what it means to us."""

import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lodger_tools.permissions.core.judge import RuleSet, judge
from lodger_tools.permissions.core.modes import Mode
from lodger_tools.permissions.core.rules import parse_rule
from lodger_tools.permissions.core.shell import parse_script
from lodger_tools.permissions.core.verdicts import Allowed, CallToJudge, NeedsPerson

HOME, WORKSPACE = "/home/ada", "/home/ada/project"


def verdict(command: str, *allow: str) -> Allowed | NeedsPerson:
    call = CallToJudge("Bash", {"command": command}, WORKSPACE, WORKSPACE, None)
    rules = RuleSet(allow=tuple(map(parse_rule, allow)), ask_every_command=True)
    answer = judge(call, rules, Mode.STANDARD, HOME)
    assert isinstance(answer, Allowed | NeedsPerson)
    return answer


WORD = st.text(st.sampled_from("ab -_./=:;&|<>()$`'\"\\*?[]{}~#!^%@,+\n\té"), max_size=8)
QUOTES = st.sampled_from(["bare", "single", "double", "backslash"])


def quoted(word: str, how: str) -> str:
    match how:
        case "single":
            return "'" + word.replace("'", "'\\''") + "'"
        case "double":
            return f'"{word}"'
        case "backslash":
            return "".join(f"\\{character}" for character in word)
        case _:
            return word


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(WORD, QUOTES), max_size=4))
@example([("]", "bare"), ("]", "bare")])
@example([("a \n", "backslash"), ("b", "bare")])
@example([("a ", "backslash"), ("\\\nb", "bare")])
@example([(" \nb", "backslash")])
@example([("a", "bare"), (";;", "bare")])
def test_a1_the_words_that_are_judged_are_byte_for_byte_those_that_are_passed_on(pieces: list[tuple[str, str]]) -> None:
    text = "printf '%s\\0' " + " ".join(quoted(word, how) for word, how in pieces)
    script = parse_script(text)
    if not script.certain:
        return
    command = script.commands[0]
    if len(script.commands) > 1 or command.assigns or command.redirects or len(command.words) < 3:
        return
    ran = subprocess.run(["bash", "--norc", "-c", text], capture_output=True, cwd="/", env={"PATH": "/usr/bin:/bin"})
    assert ran.stdout == b"".join(f"{word}\0".encode() for word in command.words[2:])


EXPANDED = [
    "*",
    "?.txt",
    "[a-z]",
    "~",
    "~/x",
    "$HOME",
    "${HOME}",
    '"$HOME"',
    "`id`",
    "$(id)",
    "{a,b}",
    "<(id)",
    "$'\\x41'",
]


@pytest.mark.parametrize("operand", EXPANDED)
def test_a2_a_safe_command_with_what_the_shell_expands_asks(operand: str) -> None:
    assert isinstance(verdict(f"touch {operand}", "Bash(touch:*)"), NeedsPerson)


@pytest.mark.parametrize("operand", EXPANDED)
def test_a2_control_the_same_characters_quoted_are_mere_text(operand: str) -> None:
    literal = "'" + operand.replace("'", "") + "'"
    assert isinstance(verdict(f"touch {literal}", "Bash(touch:*)"), Allowed)


READING = Allowed("it only reads, inside the box")
INTERPRETERS = [
    "sh",
    "bash",
    "dash",
    "zsh",
    "ksh",
    "fish",
    "python",
    "python3",
    "python3.11",
    "pypy3",
    "node",
    "nodejs",
    "deno",
    "bun",
    "perl",
    "perl5.36",
    "ruby",
    "ruby3.1",
    "php",
    "php8.2",
    "lua",
    "lua5.4",
    "tclsh8.6",
    "awk",
    "gawk",
    "env",
    "xargs",
    "sudo",
    "ssh",
    "eval",
    "exec",
    "source",
    "busybox",
    "make",
    "find",
    "tar",
    "vim",
    "less",
    "sed",
    "gdb",
    "parallel",
    "watch",
]


@pytest.mark.parametrize("program", INTERPRETERS)
@pytest.mark.parametrize("dress", ["{} x", "/usr/bin/{} x", "./{} x", "'{}' x", "{} -c x"])
def test_a3_an_interpreter_never_becomes_a_standing_rule(program: str, dress: str) -> None:
    answer = verdict(dress.format(program))
    # To look around with `find` is allowed where only reading is; that is no rule either.
    assert isinstance(answer, Allowed) is (answer == READING) and getattr(answer, "suggestions", ()) == ()


@pytest.mark.parametrize(
    "command",
    [
        "npm run build",
        "npm exec x",
        "yarn dlx x",
        "docker run x",
        "cargo run",
        "go run .",
        "uv run x",
        "uv tool run x",
        "git config alias.x '!sh'",
        "git submodule foreach sh",
        "git -c alias.x=!sh x",
        "git rebase -x sh",
        "pip install .",
    ],
)
def test_a3_nor_does_a_program_that_runs_what_stands_elsewhere(command: str) -> None:
    answer = verdict(command)
    assert isinstance(answer, NeedsPerson) and answer.suggestions == ()


WRITING = [
    "touch a && touch b > f",
    "touch a | touch b > f",
    "touch a; > f",
    "touch a | > f",
    "! touch a > f",
    "touch a 2>&1 | touch b >> f",
    "touch a > 2",
    "touch a &> f",
    "touch a >| f",
    "touch a >& f",
    "touch a > /dev/null/../x",
]


@pytest.mark.parametrize("command", WRITING)
def test_a2_a_rule_about_words_lets_nothing_write_a_file_on_the_side(command: str) -> None:
    assert isinstance(verdict(command, "Bash(touch:*)"), NeedsPerson)
    assert isinstance(verdict(command.replace("touch", "cat")), NeedsPerson)


def test_a2_control_a_stream_that_goes_nowhere_or_into_another_is_no_file() -> None:
    for command in ("touch a 2>/dev/null", "touch a 2>&1", "touch a > /dev/null 2>&1 && touch b"):
        assert isinstance(verdict(command, "Bash(touch:*)"), Allowed), command


def test_a3_control_an_ordinary_program_does_and_then_passes() -> None:
    answer = verdict("git commit -m x")
    assert isinstance(answer, NeedsPerson)
    [suggestion] = answer.suggestions
    assert isinstance(verdict("git commit -m y", suggestion.rule), Allowed)
    assert isinstance(verdict("git commit -m y; sh x", suggestion.rule), NeedsPerson)
