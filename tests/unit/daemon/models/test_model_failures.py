"""The one table of failures, and how long a provider asks to wait."""

import json

import pytest

from lodger_daemon.models.contract import FailureKind
from lodger_daemon.models.core.failures import failure_of_event, failure_of_response
from lodger_daemon.models.core.retry_hints import retry_after

KINDS = [
    (401, b'{"error":{"message":"no"}}', FailureKind.AUTHENTICATION),
    (402, b"", FailureKind.QUOTA),
    (403, b"", FailureKind.AUTHENTICATION),
    (404, b'{"error":{"message":"The model x does not exist","code":"model_not_found"}}', FailureKind.UNKNOWN_MODEL),
    (404, b'{"type":"error","error":{"type":"not_found_error","message":"model: x"}}', FailureKind.UNKNOWN_MODEL),
    (404, b"<html>not here</html>", FailureKind.BAD_REQUEST),
    (408, b"", FailureKind.TIMEOUT),
    (413, b"", FailureKind.CONTEXT_OVERFLOW),
    (429, b'{"error":{"message":"slow down","code":"rate_limit_exceeded"}}', FailureKind.RATE_LIMIT),
    (429, b'{"error":{"message":"pay","type":"insufficient_quota"}}', FailureKind.QUOTA),
    (400, b'{"error":{"message":"x","code":"context_length_exceeded"}}', FailureKind.CONTEXT_OVERFLOW),
    (
        400,
        b'{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9 > 8"}}',
        FailureKind.CONTEXT_OVERFLOW,
    ),
    (400, b'{"error":{"message":"Your credit balance is too low"}}', FailureKind.QUOTA),
    (400, b'{"error":{"message":"bad field"}}', FailureKind.BAD_REQUEST),
    (400, b'[{"error":{"code":400,"message":"bad","status":"INVALID_ARGUMENT"}}]', FailureKind.BAD_REQUEST),
    (429, b'[{"error":{"code":429,"message":"x","status":"RESOURCE_EXHAUSTED"}}]', FailureKind.RATE_LIMIT),
    (500, b"not json", FailureKind.SERVER),
    (502, b"<html>", FailureKind.SERVER),
    (503, b"", FailureKind.OVERLOADED),
    (529, b'{"type":"error","error":{"type":"overloaded_error","message":"x"}}', FailureKind.OVERLOADED),
    # A message that quotes a status decides nothing: structured fields come first.
    (500, b'{"error":{"message":"upstream said 401 unauthorized","type":"api_error"}}', FailureKind.SERVER),
]


@pytest.mark.parametrize(("status", "body", "kind"), KINDS)
def test_the_kind_of_an_answer(status: int, body: bytes, kind: FailureKind) -> None:
    assert failure_of_response(status, {}, body, 0.0).kind is kind


def test_an_error_without_status_is_the_servers() -> None:
    assert failure_of_event({"error": "something"}, False).kind is FailureKind.SERVER


OVERFLOWS = [
    (400, "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens", 8192),
    (400, "Your input exceeds the context window of this model. Please adjust your input and try again.", None),
    (400, "prompt is too long: 210000 tokens > 200000 maximum", 200_000),
    (400, "input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000, decrease input", 200_000),
    (400, "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", 1_048_576),
    (400, "This model's maximum prompt length is 131072 but the request contains 140000 tokens.", 131_072),
    (400, "Please reduce the length of the messages or completion.", None),
    (400, "the request exceeds the available context size (4096 tokens), try increasing it", 4096),
    (400, "The number of tokens to keep is greater than the context length of 4096. Load a larger one", 4096),
    (
        400,
        "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
        32768,
    ),
    (400, "The decoder prompt (length 5000) is longer than the maximum model length of 4096.", 4096),
    (400, "prompt too long; exceeded max context length by 12 tokens", None),
    (500, "the input length exceeds the context length", None),
    (400, "Prompt exceeds max length", None),
    (400, "Your request exceeded model token limit: 262144 (requested: 300000)", 262_144),
    (422, "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193", None),
    (400, "The prompt is too long: 70000, model maximum context length: 65,536", 65_536),
    (400, "prompt token count of 140000 exceeds the limit of 128000", 128_000),
    (400, "too many tokens: total number of tokens in the prompt cannot exceed 4081", None),
    (429, "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 50000.", None),
    (413, "Request too large for model `x` on tokens per minute (TPM): Limit 6000, Requested 7000", None),
]


@pytest.mark.parametrize(("status", "words", "window"), OVERFLOWS)
def test_each_providers_words_for_too_long(status: int, words: str, window: int | None) -> None:
    body = json.dumps({"error": {"message": words, "type": "invalid_request_error", "code": "rate_limit_exceeded"}})
    found = failure_of_response(status, {"retry-after": "9"}, body.encode(), 0.0)
    assert (found.kind, found.context_window) == (FailureKind.CONTEXT_OVERFLOW, window)
    assert found.retry_after_s is None


def test_a_field_tells_the_window_before_any_words() -> None:
    error = {"code": 400, "type": "exceed_context_size_error", "message": "too long", "n_ctx": 512}
    assert failure_of_response(400, {}, json.dumps({"error": error}).encode(), 0.0).context_window == 512


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (429, "Rate limit reached. Note the context window of this model."),
        (401, "No key for the large context window"),
        (404, "No such model; see context length"),
    ],
)
def test_what_only_mentions_the_window_is_no_overflow(status: int, words: str) -> None:
    body = json.dumps({"error": {"message": words}}).encode()
    assert failure_of_response(status, {}, body, 0.0).kind is not FailureKind.CONTEXT_OVERFLOW


@pytest.mark.parametrize(
    ("headers", "error", "wait_s"),
    [
        ({"retry-after": "7"}, {"retry_after": 3}, 7.0),
        ({}, {"retry_after": 3}, 3.0),
        ({}, {"retry_after": "2.5"}, 2.5),
        ({}, {"metadata": {"retry_after_ms": 1500}}, 1.5),
        (
            {},
            {"details": [{"@type": "x"}, {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34s"}]},
            34.0,
        ),
        ({}, {"message": "Limit reached. Please try again in 20s. Visit us"}, 20.0),
        ({}, {"message": "Please try again in 6m0s."}, 360.0),
        ({}, {"message": "Please try again in 864ms."}, 0.864),
        ({}, {"message": "Please retry after 5 seconds"}, 5.0),
        ({}, {"message": "Please retry after 5 moons"}, None),
        ({}, {"message": "try again later"}, None),
        ({}, {"retry_after": True}, None),
        ({}, {"retry_after": 10**400}, None),  # more than any float
        ({}, {"retry_after_ms": 10**400}, None),
        ({}, {"retry_after": "nan"}, None),
        ({}, {"retry_after": -1}, None),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}, {}, 360.0),
        ({"x-ratelimit-remaining-tokens": "9", "x-ratelimit-reset-tokens": "6m0s"}, {}, None),
        (
            {
                "anthropic-ratelimit-tokens-remaining": "0",
                "anthropic-ratelimit-tokens-reset": "1970-01-01T00:00:30Z",
            },
            {},
            20.0,
        ),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "soon"}, {}, None),
    ],
)
@pytest.mark.parametrize("status", [429, 529, 503])
def test_a_wait_may_stand_anywhere(
    status: int, headers: dict[str, str], error: dict[str, object], wait_s: float
) -> None:
    found = failure_of_response(status, headers, json.dumps({"error": error}).encode(), 10.0)
    assert found.retryable
    assert found.retry_after_s == wait_s


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:30 GMT"}, 20.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-4"}, None),
        ({"retry-after": "nan"}, None),
        ({}, None),
    ],
)
def test_the_wait_a_provider_asks_for(headers: dict[str, str], wait_s: float | None) -> None:
    assert retry_after(headers, 10.0) == wait_s


def test_half_a_character_in_an_error_is_marked() -> None:
    body = json.dumps({"error": {"message": "bad \ud83d"}}).encode()
    assert failure_of_response(400, {}, body, 0.0).message == "HTTP 400: bad \ufffd"
