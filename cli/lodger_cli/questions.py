"""Answering the daemon's questions in the terminal."""

import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final

from lodger_cli.question_words import body, title
from lodger_cli.terminal import GREEN, RED, coloured, note, paint, unmasked
from lodger_cli.wire import Frame

_WORDS: Final = {"y": "[y]es", "n": "[n]o", "a": "[a]lways"}
ASK_TOOL: Final = "AskUserQuestion"

ReadLine = Callable[[str], Awaitable[str]]
"""Shows a prompt and reads a line; empty at the end of input."""


async def ask_person(question: Frame, read: ReadLine) -> Frame:
    """Show what is asked exactly as it will run, and read the person's decision."""
    request = question["request"]
    if request["tool_name"] == ASK_TOOL:
        return await _ask_questions(request, read)
    own = title(request)
    note("")
    note(own or f"The agent asks to use {unmasked(str(request['tool_name']))}:")
    if request.get("reason"):
        note(f"  ({unmasked(str(request['reason']))})")
    colours = coloured(sys.stderr)
    for line in describe(request, colours).splitlines() if own is None else body(request, colours):
        note(f"    {line}")
    suggestions = request.get("permission_suggestions") or []
    for suggestion in suggestions:
        note(f"    [a] {unmasked(str(suggestion['text']))}")
    answer, words = await _read_key(read, "yna" if suggestions else "yn")
    if answer == "a":
        chosen = [suggestion["id"] for suggestion in suggestions]
        return {"decision": {"behavior": "allow", "selected_permission_suggestion_ids": chosen}}
    if answer == "y":
        return {"decision": {"behavior": "allow", **({"message": words} if words else {})}}
    return {"decision": {"behavior": "deny", "message": words or "the person said no"}}


def describe(request: Frame, colours: bool = False) -> str:
    """The exact command, or the arguments and the diff."""
    arguments = request.get("input") or {}
    if request["tool_name"] == "Bash":
        outside = f"\n(in {unmasked(str(arguments['folder']))})" if arguments.get("folder") else ""
        return unmasked(str(arguments.get("command", ""))) + outside
    diffs = request.get("diffs") or []
    if any(diff.get("hunks") for diff in diffs):
        # The texts of a write or edit are in the diff, where they can be read.
        shown = {
            name: value for name, value in arguments.items() if name not in ("content", "old_string", "new_string")
        }
    else:
        shown = arguments
    lines = [unmasked(json.dumps(shown, ensure_ascii=False, indent=2))]
    for diff in diffs:
        lines.append(f"--- {unmasked(str(diff.get('fileName', '')))}")
        if diff.get("reason"):
            lines.append(f"(no preview: {unmasked(str(diff['reason']))})")
        for hunk in diff.get("hunks") or []:
            lines += [_diff_line(line, colours) for line in hunk["lines"]]
    return "\n".join(lines)


def _diff_line(line: Any, colours: bool) -> str:
    sign, colour = {"add": ("+", GREEN), "remove": ("-", RED)}.get(line["type"], (" ", ""))
    text = sign + unmasked(str(line["content"]))
    return paint(text, colour, colours and bool(colour))


async def _read_key(read: ReadLine, keys: str) -> tuple[str, str]:
    """One of `keys` and what the person wrote behind it, asked for until it comes; n at the end of input."""
    words = ", ".join(_WORDS[key] for key in keys)
    while True:
        line = await read(f"Allow it? {words}: ")
        if not line:
            return "n", ""
        key, _, rest = line.strip().partition(" ")
        if key.lower() in {*keys, *(_WORDS[key].replace("[", "").replace("]", "") for key in keys)}:
            return key.lower()[0], rest.strip()


async def _ask_questions(request: Frame, read: ReadLine) -> Frame:
    """The agent's own questions; an empty line leaves one without an answer."""
    arguments = request.get("input") or {}
    answers: dict[str, Any] = {}
    for asked in arguments.get("questions") or []:
        if not isinstance(asked, dict):
            continue
        options = [option for option in asked.get("options") or [] if isinstance(option, dict)]
        note("")
        note(unmasked(str(asked.get("question", ""))))
        for number, option in enumerate(options, 1):
            about = f" - {unmasked(str(option['description']))}" if option.get("description") else ""
            note(f"    {number}. {unmasked(str(option.get('label', '')))}{about}")
        several = " (several with commas)" if asked.get("multiSelect") else ""
        hint = f"A number{several} or your own words: " if options else "Your answer: "
        line = await read(hint)
        if not line:
            break
        if line.strip():
            answers[str(asked.get("question", ""))] = _chosen(line.strip(), options, bool(asked.get("multiSelect")))
    if not answers:
        return {"decision": {"behavior": "deny", "message": "the person did not answer"}}
    return {"decision": {"behavior": "allow", "updated_input": {**arguments, "answers": answers}}}


def _chosen(line: str, options: list[Frame], several: bool) -> Any:
    """The labels of the numbers a person typed; else what they wrote."""
    words = [word.strip() for word in line.split(",")] if several else [line]
    if all(word.isascii() and word.isdigit() and 1 <= int(word) <= len(options) for word in words):
        labels = [str(options[int(word) - 1].get("label", "")) for word in words]
        return labels if several else labels[0]
    return line
