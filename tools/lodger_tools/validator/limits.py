"""The sizes a memory may have. They bound time and memory of every reader; the prompt's own budget is smaller."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Limits:
    """What one tree and its commit may measure."""

    files: int = 10_000
    """Twice the largest memory that must work (5,000 files)."""
    tree_bytes: int = 256 * 1024 * 1024
    file_bytes: int = 1024 * 1024
    markdown_bytes: int = 256 * 1024
    core_bytes: int = 160_000
    """Twice the prompt's budget of 20,000 tokens at four bytes each."""
    depth: int = 16
    path_bytes: int = 512
    name_bytes: int = 200
    message_bytes: int = 64 * 1024
    findings: int = 50
    """More are cut: nobody reads them, and a hostile tree could make millions."""


DEFAULT_LIMITS: Final = Limits()
