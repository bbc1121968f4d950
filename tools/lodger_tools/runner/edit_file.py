"""Edit: replace one text of a file, or refuse with a reason that helps."""

from __future__ import annotations

import os

from lodger_tools.runner.edit_text import edited
from lodger_tools.runner.text_files import UTF8_MARK, read_bytes, refuse_if_changed, remember, strict_text
from lodger_tools.runner.write_file import replace_file


def edit_file(
    seen: dict[str, tuple[int, int]],
    path: str,
    old_text: str,
    new_text: str,
    replace_all: bool,
    expected_replacements: int | None,
) -> str:
    """Raises: FileRefused; OSError. The file is then as it was."""
    real = os.path.realpath(path)
    data = read_bytes(real)
    refuse_if_changed(seen, real, data)
    mark = UTF8_MARK if data.startswith(UTF8_MARK) else b""
    text = strict_text(data[len(mark) :], path)
    result, lines = edited(text, old_text, new_text, replace_all, expected_replacements)
    content = mark + result.encode()
    replace_file(real, content)
    remember(seen, real, content)
    where = f"line {lines[0]}" if len(lines) == 1 else f"{len(lines)} places, first at line {lines[0]}"
    return f"Edited {path}: {where}."
