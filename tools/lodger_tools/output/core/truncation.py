"""Cutting a result to what a model should be shown: half from each end, and a line that says what is missing. Pure."""

from typing import Final

BASH_LIMIT_CHARS: Final = 30_000
SEARCH_LIMIT_CHARS: Final = 10_000
ANY_LIMIT_CHARS: Final = 32_000
"""The backstop. All from BEHAVIOUR.md C3."""
MARK_CHARS: Final = 400
"""Room for the line in the middle, so that the whole stays within the limit."""


def truncate_middle(text: str, limit_chars: int, whole_at: str | None = None) -> str:
    """At most `limit_chars`; `whole_at` names the file with the whole text."""
    if len(text) <= limit_chars:
        return text
    half = max(0, limit_chars - MARK_CHARS) // 2
    head, tail = text[:half], text[len(text) - half :]
    missing = len(text) - 2 * half
    lines = text.count("\n", half, len(text) - half)
    where = f"; the whole text is in {whole_at}" if whole_at else ""
    return f"{head}\n[{missing} characters ({lines} line ends) are left out here{where}]\n{tail}"
