"""JSON text in a column, compact and with a fixed key order where a digest depends on it."""

import json
from typing import cast

from lodger_tools.json_value import Json, JsonObject


def to_column(value: object) -> str:
    """Any JSON value (tuples count as arrays). Raises: ValueError for NaN and infinities, which are not JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def from_column(text: str) -> Json:
    return cast("Json", json.loads(text))


def object_from_column(text: str) -> JsonObject:
    return cast("JsonObject", json.loads(text))


def strings_from_column(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))
