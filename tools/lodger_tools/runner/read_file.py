"""Read: numbered lines of a text file, within the limits of BEHAVIOUR.md C3."""

from __future__ import annotations

from lodger_tools.runner.file_errors import FileRefused
from lodger_tools.runner.text_files import UTF8_MARK, image_kind, is_binary, read_with_real_path, remember

LINE_LIMIT_CHARS = 2000
TEXT_LIMIT_CHARS = 30_000
LINES_LIMIT = 2000


def read_file(seen: dict[str, tuple[int, int]], path: str, first_line: int, line_count: int) -> str:
    """Raises: FileRefused; OSError."""
    if first_line < 1 or line_count < 1:
        raise FileRefused("Lines are counted from 1, and at least one must be asked for.")
    data, real_path = read_with_real_path(path)
    kind = image_kind(data)
    if kind:
        raise FileRefused(f"It is a {kind} image; Read shows text only: {path}")
    if is_binary(data):
        raise FileRefused(f"It is a binary file of {len(data)} bytes; Read shows text only: {path}")
    remember(seen, real_path, data)
    text = data.removeprefix(UTF8_MARK).decode("utf-8", "replace")
    if not text:
        return "[The file exists and is empty.]"
    return numbered(text, first_line, min(line_count, LINES_LIMIT))


def numbered(text: str, first_line: int, line_count: int) -> str:
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    if first_line > len(lines):
        raise FileRefused(f"The file has {len(lines)} lines; line {first_line} is behind its end.")
    shown: list[str] = []
    size = 0
    for number, line in enumerate(lines[first_line - 1 : first_line - 1 + line_count], first_line):
        row = f"{number}\t{clipped(line.removesuffix(chr(13)))}"
        size += len(row) + 1
        if size > TEXT_LIMIT_CHARS:
            break
        shown.append(row)
    last = first_line + len(shown) - 1
    if last < len(lines):
        shown.append(f"[Lines {first_line} to {last} of {len(lines)}; go on with offset {last + 1}.]")
    return "\n".join(shown)


def clipped(line: str) -> str:
    missing = len(line) - LINE_LIMIT_CHARS
    return line if missing <= 0 else f"{line[:LINE_LIMIT_CHARS]} [{missing} more characters]"
