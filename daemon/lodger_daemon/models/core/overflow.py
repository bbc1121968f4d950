"""A request that is longer than its model reads, in each provider's words, and the size those words tell."""

import re
from typing import Final

from lodger_daemon.models.core.json_fields import as_count
from lodger_tools.json_value import JsonObject

_WORDS: Final = (
    "maximum context length",
    "max context length",
    "context window",
    "context length",
    "context size",
    "context limit",
    "maximum model length",
    "maximum prompt length",
    "model token limit",
    "prompt is too long",
    "prompt too long",
    "prompt exceeds max length",
    "input is too long",
    "input token count",
    "prompt token count",
    "too many tokens",
    "reduce the length of the messages",
    "inputs tokens",
    "`inputs` tokens",
)
_TOO_LARGE_FOR_A_MINUTE: Final = "request too large"
"""One request above a whole minute's allowance: waiting never helps, a shorter one does."""

_SIZES: Final = tuple(
    re.compile(pattern)
    for pattern in (
        r"maximum context length(?: is|:| of)? (\d[\d,]*)",
        r"(\d[\d,]*) maximum context length",
        r"> (\d[\d,]*) maximum",
        r"maximum number of tokens allowed \(?(\d[\d,]*)",
        r"available context size \((\d[\d,]*)",
        r"maximum model length of (\d[\d,]*)",
        r"maximum prompt length is (\d[\d,]*)",
        r"context (?:length|window|size)(?: of|:| is)?(?: only)? (\d[\d,]*)",
        r"model token limit: (\d[\d,]*)",
        r"exceeds the limit of (\d[\d,]*)",
        r"exceed context limit: \d+ \+ \d+ > (\d[\d,]*)",
    )
)
_SMALLEST: Final = 256
"""Less is a count of something else."""
_LARGEST: Final = 100_000_000


def is_overflow(words: str, status: int) -> bool:
    """Args: words: the error's message in small letters. status: 0 when unknown."""
    if status == 429 or (status == 413 and "per minute" in words):
        return _TOO_LARGE_FOR_A_MINUTE in words
    return status in (0, 400, 413, 422, 500) and any(phrase in words for phrase in _WORDS)


def window_told(error: JsonObject, words: str) -> int | None:
    """How many tokens the model reads, from a field or from the words. None when neither says it.

    Args:
        words: the error's message in small letters; what is searched is its first 2,000 characters.
    """
    if _SMALLEST <= (told := as_count(error.get("n_ctx"))) <= _LARGEST:
        return told
    for pattern in _SIZES:
        if found := pattern.search(words[:2000]):
            size = int(found.group(1).replace(",", "")[:12])
            if _SMALLEST <= size <= _LARGEST:
                return size
    return None
