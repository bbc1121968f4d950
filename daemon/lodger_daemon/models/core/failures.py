"""From what a provider answers to the one table of failures: structured fields first, words last."""

from collections.abc import Mapping
from typing import Final

from lodger_daemon.models.contract import RETRYABLE, FailureKind, ModelFailure
from lodger_daemon.models.core.json_fields import as_object, as_text, parse_object
from lodger_daemon.models.core.overflow import is_overflow, window_told
from lodger_daemon.models.core.retry_hints import wait_hint
from lodger_daemon.models.core.surrogates import whole_characters
from lodger_tools.json_value import Json, JsonObject

BODY_LIMIT_BYTES: Final = 256 * 1024
"""Of an error's body; the rest is not read."""
MESSAGE_LIMIT_CHARS: Final = 2000
CALLS_LIMIT: Final = 1000
"""Tool calls of one answer. Providers allow 128 at once; each costs a decision and a place in the journal."""

_BY_CODE: Final[Mapping[str, FailureKind]] = {
    "context_length_exceeded": FailureKind.CONTEXT_OVERFLOW,
    "exceed_context_size_error": FailureKind.CONTEXT_OVERFLOW,
    "request_too_large": FailureKind.CONTEXT_OVERFLOW,
    "insufficient_quota": FailureKind.QUOTA,
    "billing_error": FailureKind.QUOTA,
    "billing_hard_limit_reached": FailureKind.QUOTA,
    "insufficient_balance": FailureKind.QUOTA,
    "rate_limit_exceeded": FailureKind.RATE_LIMIT,
    "rate_limit_error": FailureKind.RATE_LIMIT,
    "resource_exhausted": FailureKind.RATE_LIMIT,
    "overloaded_error": FailureKind.OVERLOADED,
    "unavailable": FailureKind.OVERLOADED,
    "unavailable_error": FailureKind.OVERLOADED,
    "timeout_error": FailureKind.TIMEOUT,
    "invalid_api_key": FailureKind.AUTHENTICATION,
    "authentication_error": FailureKind.AUTHENTICATION,
    "permission_error": FailureKind.AUTHENTICATION,
    "permission_denied": FailureKind.AUTHENTICATION,
    "unauthenticated": FailureKind.AUTHENTICATION,
    "model_not_found": FailureKind.UNKNOWN_MODEL,
    "model_not_available": FailureKind.UNKNOWN_MODEL,
    "api_error": FailureKind.SERVER,
    "server_error": FailureKind.SERVER,
    "internal_server_error": FailureKind.SERVER,
}

_BY_STATUS: Final[Mapping[int, FailureKind]] = {
    401: FailureKind.AUTHENTICATION,
    402: FailureKind.QUOTA,
    403: FailureKind.AUTHENTICATION,
    408: FailureKind.TIMEOUT,
    409: FailureKind.SERVER,
    413: FailureKind.CONTEXT_OVERFLOW,
    425: FailureKind.SERVER,
    429: FailureKind.RATE_LIMIT,
    498: FailureKind.OVERLOADED,
    503: FailureKind.OVERLOADED,
    504: FailureKind.TIMEOUT,
    524: FailureKind.TIMEOUT,
    529: FailureKind.OVERLOADED,
}

# Only asked when neither code nor status decides, in this order.
_BY_WORDS: Final = (
    ("credit balance", FailureKind.QUOTA),
    ("exceeded your current quota", FailureKind.QUOTA),
    ("api key", FailureKind.AUTHENTICATION),
    ("does not exist", FailureKind.UNKNOWN_MODEL),
    ("model not found", FailureKind.UNKNOWN_MODEL),
    ("unknown model", FailureKind.UNKNOWN_MODEL),
    ("overloaded", FailureKind.OVERLOADED),
)


def failure_of_response(status: int, headers: Mapping[str, str], body: bytes, now_s: float) -> ModelFailure:
    """The failure a non-success answer means.

    Args:
        headers: names in lower case.
        now_s: wall time, for a `Retry-After` that is a date.
    """
    # Google wraps its errors into a list of one.
    fields = parse_object(body.strip().removeprefix(b"[").removesuffix(b"]"))
    error = _error_fields(fields)
    return _failure(status, error, _message(status, error, body), wait_hint(headers, error, now_s), output_seen=False)


def failure_of_event(event: JsonObject, output_seen: bool) -> ModelFailure:
    """The failure an error object inside a stream means."""
    error = _error_fields(event)
    code = error.get("code")
    status = _status_number(code) or _status_number(error.get("status")) or 0
    return _failure(status, error, _message(status, error, b""), wait_hint({}, error, 0.0), output_seen)


def _failure(status: int, error: JsonObject, message: str, wait_s: float | None, output_seen: bool) -> ModelFailure:
    kind = _kind(status, error)
    overflows = kind is FailureKind.CONTEXT_OVERFLOW
    return ModelFailure(
        kind,
        message,
        status=status or None,
        retry_after_s=wait_s if kind in RETRYABLE else None,
        output_seen=output_seen,
        context_window=window_told(error, as_text(error.get("message")).lower()) if overflows else None,
    )


def _error_fields(body: JsonObject | None) -> JsonObject:
    if body is None:
        return {}
    error = body.get("error")
    if isinstance(error, dict):
        return error
    if isinstance(error, str):
        return {"message": error, "code": body.get("code"), "type": body.get("type")}
    if isinstance(body.get("detail"), str):
        return {"message": body["detail"]}
    return body


def _kind(status: int, error: JsonObject) -> FailureKind:
    words = as_text(error.get("message")).lower()
    # Before the code: some give the code of a rate limit, or none, to what no wait can mend.
    if is_overflow(words, status):
        return FailureKind.CONTEXT_OVERFLOW
    for name in ("code", "type", "status"):
        word = error.get(name)
        if isinstance(word, str) and (kind := _BY_CODE.get(word.lower())):
            return kind
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status >= 500:
        return FailureKind.SERVER
    if status == 404 and as_text(error.get("type")) == "not_found_error":
        return FailureKind.UNKNOWN_MODEL
    for phrase, kind in _BY_WORDS:
        if phrase in words:
            return kind
    if status == 404 and "model" in words:
        return FailureKind.UNKNOWN_MODEL
    return FailureKind.BAD_REQUEST if status else FailureKind.SERVER


def _message(status: int, error: JsonObject, body: bytes) -> str:
    words = as_text(error.get("message")).strip()
    if nested := as_text(as_object(error.get("metadata")).get("raw")).strip():
        words = f"{words}: {nested}"
    if not words and _looks_like_a_page(body):
        words = "a web page instead of an answer; check the provider's address"
    if not words:
        words = body.decode("utf-8", "replace").strip() or "no explanation"
    words = whole_characters(words[:MESSAGE_LIMIT_CHARS])
    return f"HTTP {status}: {words}" if status else words


def _looks_like_a_page(body: bytes) -> bool:
    return body.lstrip()[:15].lower().startswith((b"<!doctype", b"<html"))


def page_instead_of_stream() -> ModelFailure:
    return ModelFailure(
        FailureKind.BAD_REQUEST, "The provider answered with a web page; check its address (base_url).", status=200
    )


def too_much(what: str) -> ModelFailure:
    """Of an answer that no model means. Asked again, it would come again."""
    return ModelFailure(FailureKind.BAD_REQUEST, f"The provider's answer has {what} and was cut off.")


def cut_short(output_seen: bool) -> ModelFailure:
    return ModelFailure(
        FailureKind.CUT_SHORT, "The provider's stream broke off before its end.", output_seen=output_seen
    )


def _status_number(value: Json) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) == 3:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 100 <= value < 600 else 0
