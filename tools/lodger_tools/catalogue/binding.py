"""From a tool's arguments to the operation that a box runs. Pure. Names of tools and arguments: BEHAVIOUR.md C2."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final, Literal, cast

from lodger_tools.box.contract import (
    EditFile,
    FindFiles,
    Operation,
    ReadFile,
    RunCommand,
    SearchFiles,
    WriteFile,
)
from lodger_tools.catalogue.arguments import Arguments, BadArguments
from lodger_tools.catalogue.exec_sessions import EXEC_TOOL, bind_exec
from lodger_tools.json_value import JsonObject
from lodger_tools.permissions.core.reach import FOLDER_ARGUMENT

FOREGROUND_DEFAULT_S: Final = 120.0
FOREGROUND_LIMIT_S: Final = 600.0
"""BEHAVIOUR.md C5. A command in the background has the limit it was given, and else none."""
LONGEST_TIMEOUT_S: Final = 7 * 24 * 3600.0
MANY: Final = 1_000_000_000
COMMAND_LIMIT_CHARS: Final = 128 * 1024 - 1
"""The kernel takes no longer single argument."""


def bind(tool_name: str, values: JsonObject) -> Operation:
    """Raises: BadArguments in words for the model."""
    binder = BINDERS.get(tool_name)
    if binder is None:
        raise BadArguments(f"There is no tool {tool_name!r}; there are {', '.join(BINDERS)}.")
    return binder(Arguments(tool_name, values))


def bind_bash(arguments: Arguments) -> RunCommand:
    command = arguments.text("command")
    arguments.optional_text("description")
    arguments.optional_text(FOLDER_ARGUMENT)  # decides in which box the command runs, before it gets here
    if not command.strip():
        raise BadArguments("Bash: command is empty.")
    if len(command.encode("utf-8", "replace")) > COMMAND_LIMIT_CHARS:
        raise BadArguments("Bash: command is longer than 128 KiB; write it to a file with Write and run that.")
    if "\0" in command:
        raise BadArguments("Bash: command holds a NUL character.")
    timeout_ms = arguments.optional_number("timeout", 1, MANY)
    timeout_s = None if timeout_ms is None else min(timeout_ms / 1000, LONGEST_TIMEOUT_S)
    return RunCommand(command, timeout_s, background=arguments.flag("run_in_background"))


def in_foreground(command: RunCommand) -> RunCommand:
    """With the limits of a command whose end is waited for."""
    timeout_s = FOREGROUND_DEFAULT_S if command.timeout_s is None else min(command.timeout_s, FOREGROUND_LIMIT_S)
    return replace(command, timeout_s=timeout_s)


def bind_read(arguments: Arguments) -> ReadFile:
    # 0 is what models write who count from nothing; they mean the beginning.
    first_line = max(1, arguments.number("offset", 1, 0, MANY))
    return ReadFile(path_of(arguments), first_line, arguments.number("limit", 2000, 1, MANY))


def bind_write(arguments: Arguments) -> WriteFile:
    return WriteFile(path_of(arguments), arguments.text("content"))


def bind_edit(arguments: Arguments) -> EditFile:
    return EditFile(
        path=path_of(arguments),
        old_text=arguments.text("old_string"),
        new_text=arguments.text("new_string"),
        replace_all=arguments.flag("replace_all"),
        expected_replacements=arguments.optional_number("expected_replacements", 1, MANY),
    )


def bind_glob(arguments: Arguments) -> FindFiles:
    pattern = arguments.text("pattern")
    if not pattern or "\0" in pattern:
        raise BadArguments("Glob: pattern is empty or holds a NUL character.")
    return FindFiles(pattern, arguments.optional_text("path") or None)


def bind_grep(arguments: Arguments) -> SearchFiles:
    pattern = arguments.text("pattern")
    if not pattern or "\0" in pattern:
        raise BadArguments("Grep: pattern is empty or holds a NUL character.")
    around = arguments.number("context", arguments.number("-C", 0, 0, 1000), 0, 1000)
    mode = arguments.choice("output_mode", OUTPUT_MODES, "files_with_matches")
    return SearchFiles(
        pattern=pattern,
        path=arguments.optional_text("path") or None,
        glob=arguments.optional_text("glob") or None,
        output_mode=cast("Literal['content', 'files_with_matches', 'count']", mode),
        before=arguments.number("-B", around, 0, 1000),
        after=arguments.number("-A", around, 0, 1000),
        ignore_case=arguments.flag("-i"),
        line_numbers=arguments.flag("-n", default=True),
        file_type=arguments.optional_text("type") or None,
        head_limit=arguments.number("head_limit", 100, 0, MANY),
        offset=arguments.number("offset", 0, 0, MANY),
        multiline=arguments.flag("multiline"),
    )


def path_of(arguments: Arguments) -> str:
    path = arguments.text("file_path")
    if not path or "\0" in path:
        raise BadArguments("file_path is empty or holds a NUL character.")
    return path


OUTPUT_MODES: Final = ("content", "files_with_matches", "count")
BINDERS: Final[dict[str, Callable[[Arguments], Operation]]] = {
    "Bash": bind_bash,
    "Read": bind_read,
    "Write": bind_write,
    "Edit": bind_edit,
    "Glob": bind_glob,
    "Grep": bind_grep,
    EXEC_TOOL: lambda arguments: bind_exec(arguments.values).command,
}
