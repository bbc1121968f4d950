"""What commands say to a person, and the exit codes they end with."""

import json
import os
import re
import sys
import unicodedata
from enum import IntEnum
from typing import Any, Final, NoReturn

from lodger_cli.for_programs import json_is_asked_for
from lodger_tools.redaction.core.escapes import strip_escapes


class Exit(IntEnum):
    """Documented in docs/command-line.md."""

    OK = 0
    FAILED = 1
    """The turn, or the thing asked for, failed."""
    USAGE = 2
    UNREACHABLE = 3
    """No daemon or hub could be reached or started."""
    REFUSED = 4
    """`ask`, `chat`: the daemon was reached and would not take the message or open the conversation."""
    MODEL_FAILED = 5
    """`ask`: the model or its provider failed."""
    NOT_ALLOWED = 6
    """`ask`: there is an answer, but a call did not run because a person denied it or nobody could be asked."""
    LIMIT = 7
    """`ask`: a limit ended the turn: steps, tokens, spend or `--timeout`."""
    NO_BOX = 126
    """`sandbox run`: the command was not started. As shells say it, so that it is not taken for the command's own."""
    INTERRUPTED = 130
    PIPE_CLOSED = 141
    """Nobody reads standard output any more. As shells say it."""


def say(text: str) -> None:
    write_out(f"{text}\n")


def write_out(text: str) -> None:
    """To standard output, at once. Ends the command quietly when nobody reads that any more."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        # What is still buffered must not fail again as the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(int(Exit.PIPE_CLOSED)) from None


def note(text: str) -> None:
    """Progress and warnings: on standard error, so that standard output stays what was asked for."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        pass  # nobody reads it, and it was not asked for


def say_json(value: Any) -> None:
    write_out(json.dumps(value, ensure_ascii=False) + "\n")


def say_failure(text: str) -> None:
    """What a program reads where the command has failed."""
    say_json({"type": "error", "message": text})


def fail(text: str, code: Exit = Exit.FAILED) -> NoReturn:
    """End the command with words that say what to do; a program that asked for JSON gets them as its last line."""
    if json_is_asked_for():
        say_failure(text)
    # Hubs and providers have their words in it.
    note(f"lodger: {for_terminal(text)}")
    raise SystemExit(int(code))


def require_yes(why: str) -> None:
    """End the command where nobody can be asked whether they are sure; `why` says what is at stake."""
    if json_is_asked_for() or not sys.stdin.isatty():
        fail(f"{why}: say that you are sure with --yes", Exit.USAGE)


def confirm(question: str, otherwise: str) -> None:
    """End the command with the words `otherwise` unless the person at the terminal says yes."""
    note(f"{question} [y/N] ")
    if sys.stdin.readline(16).strip().lower() not in ("y", "yes"):
        fail(otherwise)


def failure_code(error: Exception, refused: Exit = Exit.FAILED) -> Exit:
    """Reached and refused is another thing than not reached."""
    from lodger_cli.wire import Refused

    return refused if isinstance(error, Refused) else Exit.UNREACHABLE


_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
"""Categories of characters that a terminal does not show, or that move what it shows."""
_HIDDEN_ASCII: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def for_terminal(text: str) -> str:
    """Text that others wrote, without what would drive the terminal instead of being read."""
    return strip_escapes(text).replace("\r", "")


def unmasked(text: str) -> str:
    """What a person is to decide about, with every hidden character written out: nothing in it may look like something
    else."""
    if text.isascii() and not _HIDDEN_ASCII.search(text):
        return text
    return "".join(
        f"\\u{{{ord(character):x}}}"
        if character not in "\n\t" and unicodedata.category(character) in _HIDDEN
        else character
        for character in text
    )


def coloured(stream: Any) -> bool:
    """Whether colours belong there: a terminal that knows them, and nobody said NO_COLOR."""
    return bool(stream.isatty()) and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") not in ("", "dumb")


DIM, RED, GREEN, BOLD = "2", "31", "32", "1"


def paint(text: str, colour: str, wanted: bool) -> str:
    return f"\x1b[{colour}m{text}\x1b[0m" if wanted and text else text


def age(seconds: float | None) -> str:
    """How long ago, in words."""
    return "never" if seconds is None else f"{span(seconds)} ago"


def span(seconds: float) -> str:
    """A length of time, in words."""
    for size, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {name}"
    return f"{max(seconds, 0):.0f} s"
