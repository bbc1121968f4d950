"""Shell sessions as models of the codex family know them: a command that takes input while it runs. Pure.

`exec_command` and `write_stdin` are other names for what Bash and background tasks do (BEHAVIOUR.md C6).
"""

from dataclasses import dataclass
from typing import Final

from lodger_tools.box.contract import RunCommand, Session
from lodger_tools.catalogue.arguments import Arguments, BadArguments
from lodger_tools.json_value import JsonObject

EXEC_TOOL: Final = "exec_command"
INPUT_TOOL: Final = "write_stdin"
YIELD_DEFAULT_MS: Final = 10_000
YIELD_SMALLEST_MS: Final = 250
YIELD_LIMIT_MS: Final = 30_000
LOOK_DEFAULT_MS: Final = 5_000
LOOK_LIMIT_MS: Final = 300_000
"""Of an input that types nothing."""
OUTPUT_TOKENS: Final = 10_000
CHARACTERS_PER_TOKEN: Final = 4
INPUT_LIMIT_CHARS: Final = 64 * 1024
SHELLS: Final = ("bash", "/bin/bash", "/usr/bin/bash", "sh", "/bin/sh", "/usr/bin/sh")
"""The words for the one shell that runs here. Permissions are decided on what it would make of a command; another shell
could make something else of the same text."""
_MANY: Final = 10**9


@dataclass(frozen=True, slots=True)
class ExecWish:
    command: RunCommand
    yield_s: float
    limit_chars: int


@dataclass(frozen=True, slots=True)
class InputWish:
    session: int
    text: str
    """Empty = only look."""
    yield_s: float
    limit_chars: int


def bind_exec(values: JsonObject) -> ExecWish:
    """Raises: BadArguments."""
    arguments = Arguments(EXEC_TOOL, values)
    command = arguments.text("cmd")
    arguments.optional_text("description")
    if not command.strip() or "\0" in command:
        raise BadArguments(f"{EXEC_TOOL}: cmd is empty or holds a NUL character.")
    _check_shell(arguments.optional_text("shell"))
    session = Session(
        terminal=arguments.flag("tty"),
        login=arguments.flag("login", default=True),
        workdir=arguments.optional_text("workdir") or None,
    )
    yield_ms = arguments.number("yield_time_ms", YIELD_DEFAULT_MS, 0, _MANY)
    return ExecWish(RunCommand(command, None, session=session), _within(yield_ms, YIELD_LIMIT_MS), _limit(arguments))


def bind_input(values: JsonObject) -> InputWish:
    """Raises: BadArguments."""
    arguments = Arguments(INPUT_TOOL, values)
    text = arguments.optional_text("chars") or ""
    if len(text) > INPUT_LIMIT_CHARS:
        raise BadArguments(f"{INPUT_TOOL}: chars is longer than {INPUT_LIMIT_CHARS} characters; send it in parts.")
    session = arguments.optional_number("session_id", 1, 10**18)
    if session is None:
        raise BadArguments(f"{INPUT_TOOL} needs the argument session_id (a whole number).")
    default, limit = (YIELD_SMALLEST_MS, YIELD_LIMIT_MS) if text else (LOOK_DEFAULT_MS, LOOK_LIMIT_MS)
    yield_ms = arguments.number("yield_time_ms", default, 0, _MANY)
    return InputWish(session, text, _within(yield_ms, limit), _limit(arguments))


def _check_shell(shell: str | None) -> None:
    if shell and shell not in SHELLS:
        raise BadArguments(
            f"{EXEC_TOOL}: commands run in bash, not in {shell[:100]!r}. Leave shell out; call that program in cmd."
        )


def _within(yield_ms: int, limit_ms: int) -> float:
    return min(max(yield_ms, YIELD_SMALLEST_MS), limit_ms) / 1000


def _limit(arguments: Arguments) -> int:
    tokens = arguments.number("max_output_tokens", OUTPUT_TOKENS, 1, _MANY)
    return min(tokens, OUTPUT_TOKENS) * CHARACTERS_PER_TOKEN
