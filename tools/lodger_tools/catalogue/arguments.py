"""Taking a model's arguments apart, with words it can act on. Pure."""

import json
import math
from collections.abc import Iterable, Sequence
from typing import Final

from lodger_tools.json_value import Json, JsonObject

NESTING_LIMIT: Final = 100
"""Python's own parser and writer give up near 1000, each at another depth."""


class BadArguments(Exception):
    """The arguments do not fit the tool; nothing was run. The text is for the model."""


class Arguments:
    """Reads one tool's arguments by name and type. Unknown names are tolerated, wrong types are not.

    Every method raises BadArguments.
    """

    __slots__ = ("_tool", "_values")

    def __init__(self, tool: str, values: JsonObject) -> None:
        self._tool = tool
        self._values = values

    @property
    def values(self) -> JsonObject:
        return self._values

    def text(self, name: str) -> str:
        value = self.optional_text(name)
        if value is None:
            raise BadArguments(f"{self._tool} needs the argument {name} (a string).")
        return value

    def optional_text(self, name: str) -> str | None:
        value = self._values.get(name)
        if value is None or isinstance(value, str):
            return value
        raise self._wrong(name, "a string")

    def number(self, name: str, default: int, smallest: int, largest: int) -> int:
        value = self._values.get(name)
        if value is None:
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._wrong(name, "a whole number")
        if not smallest <= value <= largest:
            raise BadArguments(f"{self._tool}: {name} must lie between {smallest} and {largest}, and is {value}.")
        return value

    def optional_number(self, name: str, smallest: int, largest: int) -> int | None:
        return None if self._values.get(name) is None else self.number(name, smallest, smallest, largest)

    def flag(self, name: str, default: bool = False) -> bool:
        value = self._values.get(name)
        if value is None:
            return default
        if isinstance(value, bool):
            return value
        raise self._wrong(name, "true or false")

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        value = self.optional_text(name)
        if value is None:
            return default
        if value in choices:
            return value
        raise BadArguments(f"{self._tool}: {name} must be one of {', '.join(choices)}, and is {value!r}.")

    def _wrong(self, name: str, wanted: str) -> BadArguments:
        kind = type(self._values[name]).__name__
        return BadArguments(f"{self._tool}: {name} must be {wanted}, and is {WORDS.get(kind, kind)}.")


WORDS = {
    "str": "a string",
    "int": "a number",
    "float": "a number",
    "bool": "true or false",
    "list": "a list",
    "dict": "an object",
}


def parse_arguments(text: str) -> Json:
    """A model's arguments, refused where later readers (store, clients, runner) would stumble over them.

    Raises: ValueError, also for NaN and infinities, which are no JSON, and for nesting that no tool needs;
    RecursionError.
    """
    value: Json = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    level = [value]
    for _ in range(NESTING_LIMIT):
        level = [inner for one in level for inner in _inside(one)]
        if not level:
            return value
    raise ValueError(f"nested deeper than {NESTING_LIMIT} levels")


def _inside(value: Json) -> Iterable[Json]:
    match value:
        case dict():
            return value.values()
        case list():
            return value
        case _:
            return ()


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is no JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:40]} is too large")
    return number
