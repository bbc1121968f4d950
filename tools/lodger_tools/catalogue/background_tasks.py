"""The tools that look after commands in the background: their arguments. Pure.

They look at the daemon's own records and at what the box kept of the agent's own commands, so they need nobody's
permission.
"""

from dataclasses import dataclass
from typing import Final

from lodger_tools.catalogue.arguments import Arguments, BadArguments
from lodger_tools.catalogue.exec_sessions import INPUT_TOOL, bind_input
from lodger_tools.json_value import JsonObject

OUTPUT_TOOL: Final = "TaskOutput"
STOP_TOOL: Final = "TaskStop"
TASK_TOOLS: Final = frozenset({OUTPUT_TOOL, STOP_TOOL})
BLOCK_DEFAULT_MS: Final = 30_000
BLOCK_LIMIT_MS: Final = 600_000
"""As long as the longest command in the foreground."""
_ID_PREFIX: Final = "bash_"
_OFFSET_LIMIT: Final = 2**62


@dataclass(frozen=True, slots=True)
class OutputWish:
    """What a `TaskOutput` asks for."""

    task_number: int
    wait_s: float
    """0 = tell at once how things stand."""
    offset: int | None
    """Where to read on; None = the last of the output."""


def task_id(number: int) -> str:
    """What the model calls a task. Numbers are never given twice on one machine."""
    return f"{_ID_PREFIX}{number}"


def bind_output(values: JsonObject) -> OutputWish:
    """Raises: BadArguments."""
    arguments = Arguments(OUTPUT_TOOL, values)
    waits = arguments.flag("block", default=True)
    timeout_ms = arguments.number("timeout", BLOCK_DEFAULT_MS, 0, _OFFSET_LIMIT)
    offset = arguments.optional_number("offset", 0, _OFFSET_LIMIT)
    return OutputWish(_number(arguments), min(timeout_ms, BLOCK_LIMIT_MS) / 1000 if waits else 0.0, offset)


def bind_stop(values: JsonObject) -> int:
    """The number of the task. Raises: BadArguments."""
    return _number(Arguments(STOP_TOOL, values))


def check_task_tool(tool_name: str, values: JsonObject) -> None:
    """Raises: BadArguments."""
    if tool_name == OUTPUT_TOOL:
        bind_output(values)
    elif tool_name == INPUT_TOOL:
        bind_input(values)
    else:
        bind_stop(values)


def _number(arguments: Arguments) -> int:
    named = arguments.text("task_id")
    digits = named.removeprefix(_ID_PREFIX)
    if not digits.isascii() or not digits.isdigit() or len(digits) > 18:
        raise BadArguments(f"{named[:100]!r} is no id of a background task; they look like {task_id(7)}.")
    return int(digits)
