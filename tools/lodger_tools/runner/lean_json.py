"""JSON without the json package, which would bring re and enum along: 10 ms of a box's start.

`_json` is the C half of the standard library's json package; where it is missing or has changed, the package serves.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def refuse(value: object) -> object:
    raise TypeError(f"not a JSON value: {type(value).__name__}")


def refuse_constant(text: str) -> object:
    raise ValueError(f"not a JSON number: {text}")


class ScannerContext:
    """The attributes that the C scanner reads from its maker."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = staticmethod(refuse_constant)
    memo: dict[str, str] = {}  # noqa: RUF012 - the C scanner clears and owns it


def lean_codec() -> tuple[Callable[[Any], str], Callable[[str], Any]]:
    from _json import encode_basestring_ascii, make_encoder, make_scanner

    encoder: Any = make_encoder(None, refuse, encode_basestring_ascii, None, ":", ",", False, False, False)
    context: Any = ScannerContext()
    scanner: Any = make_scanner(context)

    def dumps(value: Any) -> str:
        return "".join(encoder(value, 0))

    def loads(text: str) -> Any:
        try:
            value, end = scanner(text, 0)
        except StopIteration:
            raise ValueError("not JSON") from None
        if end != len(text):
            raise ValueError("something follows the JSON value")
        return value

    if loads(dumps({"a": [1, "é", None]})) != {"a": [1, "é", None]}:
        raise ValueError("the C half of json does not do what this file expects")
    return dumps, loads


def usual_codec() -> tuple[Callable[[Any], str], Callable[[str], Any]]:
    import json

    return (lambda value: json.dumps(value, separators=(",", ":"))), json.loads


try:
    dumps, loads = lean_codec()
except (ImportError, TypeError, ValueError):
    dumps, loads = usual_codec()
