import json

import pytest

from lodger_tools.box.contract import (
    EditFile,
    FindFiles,
    Operation,
    ReadFile,
    RunCommand,
    SearchFiles,
    Session,
    WriteFile,
)
from lodger_tools.catalogue.arguments import BadArguments
from lodger_tools.catalogue.background_tasks import OUTPUT_TOOL, STOP_TOOL
from lodger_tools.catalogue.binding import BINDERS, bind
from lodger_tools.catalogue.descriptions import SESSION_TOOLS, TOOLS
from lodger_tools.catalogue.environment import referenced_secrets, refused_names
from lodger_tools.catalogue.exec_sessions import EXEC_TOOL, INPUT_TOOL, bind_exec, bind_input
from lodger_tools.catalogue.person_questions import ASK_TOOL
from lodger_tools.json_value import Json, JsonObject


@pytest.mark.parametrize(
    ("tool", "arguments", "operation"),
    [
        ("Bash", {"command": "ls", "description": "List", "odd": 1}, RunCommand("ls", None)),
        ("Bash", {"command": "ls", "timeout": 1500}, RunCommand("ls", 1.5)),
        ("Bash", {"command": "ls", "timeout": 10_000_000}, RunCommand("ls", 10_000.0)),
        (
            "Bash",
            {"command": "ls", "timeout": 10**9, "run_in_background": True},
            RunCommand("ls", 604_800.0, background=True),
        ),
        ("Read", {"file_path": "a"}, ReadFile("a", 1, 2000)),
        ("Read", {"file_path": "a", "offset": 50.0, "limit": 10}, ReadFile("a", 50, 10)),
        ("Read", {"file_path": "a", "offset": 0}, ReadFile("a", 1, 2000)),
        ("Write", {"file_path": "a", "content": ""}, WriteFile("a", "")),
        ("Edit", {"file_path": "a", "old_string": "x", "new_string": "y"}, EditFile("a", "x", "y")),
        (
            "Edit",
            {"file_path": "a", "old_string": "x", "new_string": "y", "replace_all": True, "expected_replacements": 2},
            EditFile("a", "x", "y", True, 2),
        ),
        ("Glob", {"pattern": "*", "path": "d"}, FindFiles("*", "d")),
        ("Grep", {"pattern": "x"}, SearchFiles("x")),
        (
            "Grep",
            {"pattern": "x", "-C": 2, "-A": 1, "-i": True, "-n": False, "type": "py", "output_mode": "content"},
            SearchFiles(
                "x", before=2, after=1, ignore_case=True, line_numbers=False, file_type="py", output_mode="content"
            ),
        ),
    ],
)
def test_binding(tool: str, arguments: JsonObject, operation: Operation) -> None:
    assert bind(tool, arguments) == operation


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("Bash", {}, r"needs the argument command"),
        ("Bash", {"command": 1}, r"command must be a string, and is a number"),
        ("Bash", {"command": "x", "timeout": "5"}, r"timeout must be a whole number, and is a string"),
        ("Bash", {"command": "x", "timeout": True}, r"whole number"),
        ("Bash", {"command": "x", "timeout": 0}, r"between 1 and"),
        ("Bash", {"command": " "}, r"empty"),
        ("Bash", {"command": "x" * 200_000}, r"128 KiB"),
        ("Bash", {"command": "x", "run_in_background": 1}, r"true or false"),
        ("Read", {"file_path": "a", "limit": 1.5}, r"whole number"),
        ("Read", {"file_path": "a\0"}, r"NUL"),
        ("Edit", {"file_path": "a", "old_string": "x", "new_string": "y", "replace_all": "yes"}, r"true or false"),
        ("Grep", {"pattern": "x", "output_mode": "all"}, r"one of content"),
        ("bash", {"command": "x"}, r"There is no tool 'bash'; there are Bash, Read"),
    ],
)
def test_bad_arguments_are_refused_in_words(tool: str, arguments: JsonObject, words: str) -> None:
    with pytest.raises(BadArguments, match=words):
        bind(tool, arguments)


def test_sessions_have_the_limits_their_models_know() -> None:
    exec_wish = bind_exec({"cmd": "ls"})
    assert (exec_wish.yield_s, exec_wish.limit_chars) == (10.0, 40_000)
    assert exec_wish.command == RunCommand("ls", None, session=Session(terminal=False, login=True))
    wish = bind_exec({"cmd": "ls", "yield_time_ms": 1, "tty": True, "login": False, "workdir": "sub"})
    assert (wish.yield_s, wish.command.session) == (0.25, Session(True, False, "sub"))
    assert bind_exec({"cmd": "ls", "yield_time_ms": 10**6, "max_output_tokens": 10**6}).yield_s == 30.0
    assert bind_input({"session_id": 3, "chars": "x"}).yield_s == 0.25
    assert bind_input({"session_id": 3}).yield_s == 5.0
    assert bind_input({"session_id": 3, "yield_time_ms": 10**7}).yield_s == 300.0
    for bad in ({"chars": "x"}, {"session_id": 0}, {"session_id": 1, "chars": 5}):
        with pytest.raises(BadArguments):
            bind_input(bad)
    with pytest.raises(BadArguments):
        bind_exec({"cmd": " "})


@pytest.mark.parametrize("shell", [None, "", "bash", "/bin/bash", "/bin/sh"])
def test_the_shell_that_runs_commands_may_be_named(shell: str | None) -> None:
    assert bind_exec({"cmd": "ls", "shell": shell}) == bind_exec({"cmd": "ls"})


@pytest.mark.parametrize("shell", ["zsh", "/usr/bin/fish", "python3", "./bash", "/tmp/bash", "bash -x", 7])
def test_another_shell_is_refused_and_not_passed_over(shell: Json) -> None:
    """Its command was judged as one of bash's."""
    with pytest.raises(BadArguments, match="shell"):
        bind_exec({"cmd": "ls", "shell": shell})


def test_every_described_tool_can_be_bound_and_is_short() -> None:
    bound = [name for name in BINDERS if name != EXEC_TOOL]
    assert [tool.name for tool in TOOLS] == [*bound, ASK_TOOL, OUTPUT_TOOL, STOP_TOOL]
    assert [tool.name for tool in SESSION_TOOLS] == [EXEC_TOOL, INPUT_TOOL]
    assert len(json.dumps([[tool.name, tool.description, tool.parameters] for tool in TOOLS])) < 7500


@pytest.mark.parametrize(
    "name",
    [
        "PATH",
        "LD_PRELOAD",
        "DYLD_INSERT_LIBRARIES",
        "PYTHONSTARTUP",
        "JAVA_TOOL_OPTIONS",
        "DOTNET_STARTUP_HOOKS",
        "BASH_ENV",
        "ENV",
        "GIT_SSH_COMMAND",
        "NODE_OPTIONS",
        "HOME",
        "path",
        "",
    ],
)
def test_a_variable_that_changes_what_programs_do_is_refused(name: str) -> None:
    """A6."""
    assert refused_names([name, "LANG", "AGENT_ID"]) == (name,)
    if name:
        assert referenced_secrets(f"echo ${name} ${{{name}}}", {name: "value-of-it"}) == {}


def test_only_named_secrets_go_along() -> None:
    store = {"API_TOKEN": "one", "OTHER": "two", "THIRD": "three"}
    assert referenced_secrets('curl "$API_TOKEN" ${THIRD:-x} OTHER', store) == {"API_TOKEN": "one", "THIRD": "three"}
