"""What a write or an edit would change, as v2 diff hunks (PROTOCOL.md 5.7). Runs in a forked child."""

from __future__ import annotations

import os

from lodger_tools.runner.edit_text import edited
from lodger_tools.runner.file_errors import FileRefused, words_for
from lodger_tools.runner.lean_json import dumps
from lodger_tools.runner.text_files import UTF8_MARK, is_binary, read_bytes, strict_text
from lodger_tools.runner.write_file import existing, in_the_style_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CONTEXT_LINES = 3
LINES_LIMIT = 20_000
DIFF_LIMIT_BYTES = 256 * 1024


def preview(path: str, args: dict[str, Any], payload: bytes) -> tuple[bool, str]:
    """One diff object as JSON; always a success, since a preview that cannot be made says so itself."""
    try:
        old, new = before_and_after(path, args, payload)
        diff = {"mode": "advanced", "fileName": path, "hunks": hunks(old, new)}
        text = dumps(diff)
    except FileRefused as refusal:
        text = dumps({"mode": "unpreviewable", "fileName": path, "reason": str(refusal)})
    except OSError as error:
        text = dumps({"mode": "unpreviewable", "fileName": path, "reason": words_for(error, path)})
    if len(text) > DIFF_LIMIT_BYTES:
        text = dumps({"mode": "fallback", "fileName": path, "reason": "The change is too large to be shown."})
    return True, text


def before_and_after(path: str, args: dict[str, Any], payload: bytes) -> tuple[str, str]:
    real = os.path.realpath(path)
    if args["change"] == "write":
        old = existing(real) or b""
        if is_binary(old):
            raise FileRefused("The file now holds binary data.")
        new = in_the_style_of(old, payload) if old else payload
        return old.decode("utf-8", "replace"), new.decode("utf-8", "replace")
    data = read_bytes(real).removeprefix(UTF8_MARK)
    text = strict_text(data, path)
    old_bytes: int = args["old_bytes"]
    old_text, new_text = payload[:old_bytes].decode(), payload[old_bytes:].decode()
    result, _ = edited(text, old_text, new_text, args["replace_all"], args["expected_replacements"])
    return text, result


def hunks(old: str, new: str) -> list[dict[str, Any]]:
    """Raises: FileRefused when there are too many lines to compare in time."""
    import difflib

    before, after = lines_of(old), lines_of(new)
    if len(before) + len(after) > LINES_LIMIT:
        raise FileRefused("The file has too many lines to show what changes.")
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=True)
    result = []
    for group in matcher.get_grouped_opcodes(CONTEXT_LINES):
        lines: list[dict[str, str]] = []
        for tag, old_start, old_end, new_start, new_end in group:
            if tag == "equal":
                lines += [{"type": "context", "content": line} for line in before[old_start:old_end]]
                continue
            lines += [{"type": "remove", "content": line} for line in before[old_start:old_end]]
            lines += [{"type": "add", "content": line} for line in after[new_start:new_end]]
        old_count = group[-1][2] - group[0][1]
        new_count = group[-1][4] - group[0][3]
        result.append(
            {
                # As in unified diffs: a range of no lines names the line before it.
                "oldStart": group[0][1] + (1 if old_count else 0),
                "oldLines": old_count,
                "newStart": group[0][3] + (1 if new_count else 0),
                "newLines": new_count,
                "lines": lines,
            }
        )
    return result


def lines_of(text: str) -> list[str]:
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]
