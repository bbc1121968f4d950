"""The memory part of a system prompt, from the files of one commit."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

BUDGET_TOKENS: Final = 20_000
"""What the reference discusses as limit for core memory (BEHAVIOUR.md F3)."""
BYTES_PER_TOKEN: Final = 4
_WARN_TOKENS: Final = 16_000
"""From four fifths of it on the agent is told, so that it can tidy up before it must."""
MAX_TREE_LINES: Final = 400
"""More files are only counted, so nobody needs to look into them."""
_MAX_DESCRIPTION: Final = 200


@dataclass(frozen=True, slots=True)
class CoreFile:
    """Shown whole, front matter removed."""

    path: str
    body: str


@dataclass(frozen=True, slots=True)
class OtherFile:
    """Shown as a line."""

    path: str
    description: str


def compile_text(place: str, core: Sequence[CoreFile], others: Sequence[OtherFile]) -> str:
    """Byte-stable for the same files.

    Args:
        place: where the agent finds the checkout.
        core, others: in path order.
    """
    parts = [
        f"Your memory is the git repository {place}; what you commit there on main is kept and travels with you to"
        " every machine. These are its core files."
    ]
    parts += [f'<memory_file path="{file.path}">\n{file.body.strip()}\n</memory_file>' for file in core]
    if others:
        lines = [file_line(file) for file in others]
        cut = len(lines) - MAX_TREE_LINES
        lines = lines[:MAX_TREE_LINES] + ([f"- and {cut} more; list the folders to see them"] if cut > 0 else [])
        parts.append("Other files of your memory; read them when they matter:\n" + "\n".join(lines))
    return "\n\n".join(parts) + "\n"


def fullness_warning(core_bytes: int, most_bytes: int) -> str:
    """What the agent is told of the size of its core files; empty while there is room enough. In whole thousands of
    tokens, so that it is not another text after every change.

    Args:
        most_bytes: with more, a commit is not valid.
    """
    thousands = core_bytes // BYTES_PER_TOKEN // 1000
    if thousands < _WARN_TOKENS // 1000:
        return ""
    words = "is over" if thousands >= BUDGET_TOKENS // 1000 else "is nearly at"
    return (
        f"Memory: your core memory {words} its budget: it takes about {thousands},000 tokens of every prompt, the"
        f" budget is {BUDGET_TOKENS:,}, and commits with more than {most_bytes // BYTES_PER_TOKEN:,} are refused. Move"
        " what is not needed in every conversation from the core files into a folder, with a good description."
    )


def file_line(file: OtherFile) -> str:
    """Path and description."""
    return f"- {file.path}" + (f": {_short(file.description)}" if file.description else "")


def _short(description: str) -> str:
    line = " ".join(description.split())
    return line if len(line) <= _MAX_DESCRIPTION else line[: _MAX_DESCRIPTION - 1] + "…"
