"""How long a provider asks to wait, in a header, in a field of its error, or in its words."""

import re
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Final

from lodger_daemon.models.core.json_fields import as_list, as_object, as_text
from lodger_tools.json_value import Json, JsonObject

_LONGEST_S: Final = 1e7
"""Beyond four months it is no wait."""
_UNITS_S: Final = {
    "ms": 0.001,
    "s": 1.0,
    "sec": 1.0,
    "second": 1.0,
    "m": 60.0,
    "min": 60.0,
    "minute": 60.0,
    "h": 3600.0,
}
_UNIT: Final = r"(?:ms|minutes?|min|m|seconds?|secs?|s|h)(?![a-z])"
_SPAN: Final = re.compile(rf"(\d+(?:\.\d+)?) ?({_UNIT})")
_IN_WORDS: Final = re.compile(rf"(?:try again|retry|wait)(?: after| in| for)?:? ((?:\d+(?:\.\d+)? ?{_UNIT} ?){{1,3}})")
_RESET_HEADERS: Final = (
    "x-ratelimit-reset-requests",
    "x-ratelimit-reset-tokens",
    "anthropic-ratelimit-requests-reset",
    "anthropic-ratelimit-tokens-reset",
)


def retry_after(headers: Mapping[str, str], now_s: float) -> float | None:
    """Seconds; from milliseconds, seconds or an HTTP date. None when nothing usable is said.

    Args:
        headers: names in lower case.
    """
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()
        if not value:
            continue
        try:
            seconds = float(value) * unit_s
        except ValueError:
            seconds = _seconds_until(value, now_s)
        if 0 <= seconds < _LONGEST_S:
            return seconds
    return None


def wait_hint(headers: Mapping[str, str], error: JsonObject, now_s: float) -> float | None:
    """As `retry_after`, also from the error itself, last from the headers that tell when an allowance is full again."""
    for wait_s in (retry_after(headers, now_s), _in_fields(error), _in_words(as_text(error.get("message")))):
        if wait_s is not None:
            return wait_s
    spent = [name for name in _RESET_HEADERS if headers.get(name.replace("reset", "remaining"), "").strip() == "0"]
    waits = [_reset(headers.get(name, ""), now_s) for name in spent]
    return max((wait_s for wait_s in waits if wait_s is not None), default=None)


def _in_fields(error: JsonObject) -> float | None:
    metadata = as_object(error.get("metadata"))
    for fields in (error, metadata):
        for name, unit_s in (("retry_after_ms", 0.001), ("retry_after_seconds", 1.0), ("retry_after", 1.0)):
            if (wait_s := _number(fields.get(name), unit_s)) is not None:
                return wait_s
    for detail in map(as_object, as_list(error.get("details"))):
        if delay := as_text(detail.get("retryDelay")):
            return _span(delay.lower())
    return None


def _in_words(words: str) -> float | None:
    found = _IN_WORDS.search(words.lower()[:2000])
    return _span(found.group(1)) if found else None


def _reset(value: str, now_s: float) -> float | None:
    """A span such as `6m0s`, or an instant."""
    if (span := _span(value.strip().lower())) is not None:
        return span
    try:
        wait_s = datetime.fromisoformat(value.strip()).timestamp() - now_s
    except (ValueError, OverflowError):
        return None
    return min(max(0.0, wait_s), _LONGEST_S)


def _span(text: str) -> float | None:
    parts = _SPAN.findall(text[:100])
    if not parts or _SPAN.sub("", text[:100]).strip():
        return None
    seconds = sum(float(number) * _UNITS_S[unit if unit in _UNITS_S else unit.rstrip("s")] for number, unit in parts)
    return seconds if seconds < _LONGEST_S else None


def _number(value: Json, unit_s: float) -> float | None:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    # Compared before it is multiplied: a whole number of JSON may be larger than any float.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LONGEST_S / unit_s:
        return None
    return value * unit_s


def _seconds_until(date: str, now_s: float) -> float:
    try:
        return max(0.0, parsedate_to_datetime(date).timestamp() - now_s)
    except (ValueError, TypeError, OverflowError):
        return -1.0
