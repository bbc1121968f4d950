"""Answering the daemon's questions in the terminal."""

import json
import sys
from typing import Final

from lodger_cli.lines import Lines
from lodger_cli.terminal import note
from lodger_cli.wire import Frame

_WORDS: Final = {"y": "[y]es", "n": "[n]o", "a": "[a]lways"}


async def ask_person(question: Frame, lines: Lines) -> Frame:
    """Show what is asked exactly as it will run, and read y, n or a."""
    request = question["request"]
    note("")
    note(f"The agent asks to use {request['tool_name']}:")
    for line in describe(request).splitlines():
        note(f"    {line}")
    suggestions = request.get("permission_suggestions") or []
    for suggestion in suggestions:
        note(f"    [a] {suggestion['text']}")
    answer = await _read_key(lines, "yna" if suggestions else "yn")
    if answer == "a":
        chosen = [suggestion["id"] for suggestion in suggestions]
        return {"decision": {"behavior": "allow", "selected_permission_suggestion_ids": chosen}}
    if answer == "y":
        return {"decision": {"behavior": "allow"}}
    return {"decision": {"behavior": "deny", "message": "the person said no"}}


def describe(request: Frame) -> str:
    """The exact command, or the arguments and the diff."""
    arguments = request.get("input") or {}
    if request["tool_name"] == "Bash":
        outside = f"\n(in {arguments['folder']})" if arguments.get("folder") else ""
        return str(arguments.get("command", "")) + outside
    lines = [json.dumps(arguments, ensure_ascii=False, indent=2)]
    for diff in request.get("diffs") or []:
        lines.append(f"--- {diff.get('fileName', '')}")
        for hunk in diff.get("hunks") or []:
            signs = {"add": "+", "remove": "-", "context": " "}
            lines += [f"{signs.get(line['type'], ' ')}{line['content']}" for line in hunk["lines"]]
    return "\n".join(lines)


async def _read_key(lines: Lines, keys: str) -> str:
    """One of `keys`, asked for until it comes; n at the end of input."""
    words = ", ".join(_WORDS[key] for key in keys)
    while True:
        sys.stderr.write(f"Allow it? {words}: ")
        sys.stderr.flush()
        line = await lines.next()
        if not line:
            note("")
            return "n"
        if (key := line.strip().lower()[:1]) and key in keys:
            return key
