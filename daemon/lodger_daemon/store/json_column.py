"""JSON and text as columns hold them."""

import json
from typing import cast, overload

from lodger_tools.json_value import Json, JsonObject


def to_column(value: object) -> str:
    """Any JSON value (tuples count as arrays). Raises: ValueError for NaN and infinities, which are not JSON."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        # Half a surrogate pair, which models do send: JSON can say it, UTF-8 cannot.
        return json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text


@overload
def storable(text: str) -> str: ...
@overload
def storable(text: None) -> None: ...
def storable(text: str | None) -> str | None:
    """Plain text for a column, with `?` for what UTF-8 cannot hold."""
    return text.encode(errors="replace").decode() if text is not None else None


def from_column(text: str) -> Json:
    return cast("Json", json.loads(text))


def object_from_column(text: str) -> JsonObject:
    return cast("JsonObject", json.loads(text))


def strings_from_column(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))
