"""What a server refused to know is left out or called by its other name, once its own error has named it."""

from collections.abc import Mapping
from typing import Final

from lodger_daemon.models.contract import FailureKind, ModelFailure
from lodger_tools.json_value import JsonObject

_OTHER_NAME: Final[Mapping[str, str]] = {
    "stream_options": "",
    "reasoning_effort": "",
    "prompt_cache_key": "",
    "max_tokens": "max_completion_tokens",
    "max_completion_tokens": "max_tokens",
}
"""Fields that not every server of the dialect takes; empty = it can do without."""
_REFUSALS: Final = ("unsupported", "not supported", "unrecognized", "unknown", "unexpected", "extra", "not permitted")


def refused_field(body: JsonObject, failure: ModelFailure) -> str | None:
    """The field of the request that this answer refuses to know; None when it is about anything else."""
    if failure.kind is not FailureKind.BAD_REQUEST or failure.status not in (400, 422):
        return None
    words = failure.message.lower()
    if not any(refusal in words for refusal in _REFUSALS):
        return None
    # The one named first: the other name of a field is often recommended in the same breath.
    named = [(words.find(name), name) for name in _OTHER_NAME if name in body and _stands_alone(words, name)]
    return min(named)[1] if named else None


def without(body: JsonObject, refused: str) -> JsonObject:
    """The request as the server may take it."""
    other = _OTHER_NAME[refused]
    changed = {name: value for name, value in body.items() if name != refused}
    return changed | {other: body[refused]} if other and refused in body else changed


def _stands_alone(words: str, name: str) -> bool:
    """Whether the name itself is in the words, not only as a part of another."""
    at = words.find(name)
    while at >= 0:
        around = words[max(0, at - 1) : at] + words[at + len(name) : at + len(name) + 1]
        if not any(character.isalnum() or character == "_" for character in around):
            return True
        at = words.find(name, at + 1)
    return False
