"""Taking a model's arguments apart, with words it can act on. Pure."""

from collections.abc import Sequence

from lodger_tools.json_value import JsonObject


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
