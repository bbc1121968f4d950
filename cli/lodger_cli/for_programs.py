"""Whether a program reads what a command prints: then what went wrong is JSON too, wherever that is found out."""

from contextvars import ContextVar
from typing import Final

_ASKED_FOR: Final[ContextVar[bool]] = ContextVar("json_asked_for", default=False)


def ask_for_json(wanted: bool) -> bool:
    """What `--json` does as it is read, before any other option is looked at."""
    _ASKED_FOR.set(wanted)
    return wanted


def json_is_asked_for() -> bool:
    return _ASKED_FOR.get()


def is_typed_in(words: list[str]) -> bool:
    """Whether a command that could not be read asks for it: as typed, and not among the words of another program."""
    return "--json" in words[: words.index("--") if "--" in words else len(words)]
