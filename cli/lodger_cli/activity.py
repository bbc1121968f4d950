"""What a turn is doing besides talking, in one line each."""

import json
from typing import Final

from lodger_cli.terminal import for_terminal, unmasked
from lodger_cli.wire import Frame

SHOWN_CALL_CHARS: Final = 200
_TELLING_ARGUMENTS: Final = ("command", "file_path", "pattern", "url", "description")
"""Of a call's arguments, the first of these is what a person wants to see."""


def activity_of(frame: Frame) -> str:
    """The line for a call that starts or a wait for the model; empty for every other frame."""
    if frame.get("type") != "stream_delta":
        return ""
    delta = frame["delta"]
    match delta.get("message_type"):
        case "client_tool_start":
            name = unmasked(str(delta.get("tool_name", "tool")))
            return f"[{name}] {unmasked(call_in_words(delta.get('tool_args') or ''))}"
        case "retry":
            return f"[waiting] {for_terminal(str(delta.get('message', '')))}"
        case _:
            return ""


def call_in_words(arguments: str) -> str:
    """What a call is about in one line; its arguments as they are when nothing in them tells."""
    try:
        fields = json.loads(arguments)
    except ValueError:
        fields = None
    words = arguments
    if isinstance(fields, dict):
        words = next((str(fields[name]) for name in _TELLING_ARGUMENTS if fields.get(name)), arguments)
        if fields.get("folder"):
            words += f" (in {fields['folder']})"
    words = " ".join(words.split())
    return words if len(words) <= SHOWN_CALL_CHARS else words[:SHOWN_CALL_CHARS] + "…"
