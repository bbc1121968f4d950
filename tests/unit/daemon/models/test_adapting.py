"""A request is changed to what a server takes only when its own refusal names the field."""

import pytest

from lodger_daemon.models.core.adapting import refused_field, without
from lodger_daemon.models.core.failures import failure_of_response
from lodger_tools.json_value import JsonObject

BODY: JsonObject = {"model": "m", "messages": [], "stream": True, "stream_options": {}, "max_tokens": 5}


@pytest.mark.parametrize(
    ("status", "words", "field"),
    [
        (
            400,
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'.",
            "max_tokens",
        ),
        (422, "body.stream_options: Extra inputs are not permitted", "stream_options"),
        (400, "Unrecognized request argument supplied: stream_options", "stream_options"),
        (400, "Unsupported parameter: max_completion_tokens", None),
        (400, "max_tokens must be at least 1", None),
        (400, "Unsupported parameter: tools", None),
        (401, "stream_options is not supported for you", None),
        (500, "stream_options is not supported", None),
    ],
)
def test_only_a_named_field_is_left_out(status: int, words: str, field: str | None) -> None:
    failure = failure_of_response(status, {}, f'{{"error":{{"message":"{words}"}}}}'.encode(), 0.0)
    assert refused_field(BODY, failure) == field


def test_a_field_goes_or_gets_its_other_name() -> None:
    assert without(BODY, "stream_options") == {k: v for k, v in BODY.items() if k != "stream_options"}
    renamed = without(BODY, "max_tokens")
    assert "max_tokens" not in renamed
    assert renamed["max_completion_tokens"] == 5
