"""What a person sees of a turn besides its text."""

import json

import pytest

from lodger_cli.activity import SHOWN_CALL_CHARS, activity_of


def delta(**fields: object) -> dict[str, object]:
    return {"type": "stream_delta", "delta": fields}


def start(name: str, arguments: object) -> dict[str, object]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return delta(message_type="client_tool_start", tool_name=name, tool_args=text)


@pytest.mark.parametrize(
    ("frame", "line"),
    [
        (start("Bash", {"command": "ls\n  -l", "description": "List"}), "[Bash] ls -l"),
        (start("Bash", {"command": "make", "folder": "/srv"}), "[Bash] make (in /srv)"),
        (start("Write", {"file_path": "a.md", "content": "x" * 999}), "[Write] a.md"),
        (start("send_mail", {"to": "ada"}), '[send_mail] {"to": "ada"}'),
        (start("Bash", "{broken"), "[Bash] {broken"),
        (start("Bash", {"command": "x" * 999}), f"[Bash] {'x' * SHOWN_CALL_CHARS}…"),
        (delta(message_type="retry", message="the model is busy"), "[waiting] the model is busy"),
        (delta(message_type="assistant_message", content="hi"), ""),
        ({"type": "turn_finished"}, ""),
    ],
)
def test_calls_and_waits_have_a_line(frame: dict[str, object], line: str) -> None:
    assert activity_of(frame) == line
