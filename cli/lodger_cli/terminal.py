"""What commands say to a person, and the exit codes they end with."""

import json
import sys
from enum import IntEnum
from typing import Any, NoReturn


class Exit(IntEnum):
    """Documented in docs/command-line.md."""

    OK = 0
    FAILED = 1
    """The turn, or the thing asked for, failed."""
    USAGE = 2
    UNREACHABLE = 3
    """No daemon or hub could be reached or started."""
    NO_BOX = 126
    """`sandbox run`: the command was not started. As shells say it, so that it is not taken for the command's own."""
    INTERRUPTED = 130


def say(text: str) -> None:
    print(text, flush=True)


def note(text: str) -> None:
    """Progress and warnings: on standard error, so that standard output stays what was asked for."""
    print(text, file=sys.stderr, flush=True)


def say_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False), flush=True)


def fail(text: str, code: Exit = Exit.FAILED, *, as_json: bool = False) -> NoReturn:
    """End the command with words that say what to do."""
    if as_json:
        say_json({"type": "error", "message": text})
    note(f"lodger: {text}")
    raise SystemExit(int(code))


def failure_code(error: Exception) -> Exit:
    """Reached and refused is another thing than not reached."""
    from lodger_cli.wire import Refused

    return Exit.FAILED if isinstance(error, Refused) else Exit.UNREACHABLE


def age(seconds: float | None) -> str:
    """How long ago, in words."""
    return "never" if seconds is None else f"{span(seconds)} ago"


def span(seconds: float) -> str:
    """A length of time, in words."""
    for size, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {name}"
    return f"{max(seconds, 0):.0f} s"
