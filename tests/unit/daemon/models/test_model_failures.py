"""The one table of failures, and how long a provider asks to wait."""

import pytest

from lodger_daemon.models.contract import FailureKind
from lodger_daemon.models.core.failures import failure_of_event, failure_of_response, retry_after

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
