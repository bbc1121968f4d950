"""What a later daemon has to know of a box's open ports, as text."""

import json
from dataclasses import dataclass
from typing import Final

from lodger_tools.json_value import JsonObject

_PORTS: Final = 256


@dataclass(frozen=True, slots=True)
class Grants:
    open: dict[int, int]
    """Local port by port of the box: what a person opened for as long as the box lives."""
    denied: frozenset[int]


def as_text(grants: Grants) -> str:
    stored = {"open": [[port, local] for port, local in grants.open.items()], "denied": sorted(grants.denied)}
    return json.dumps(stored)


def from_text(text: str) -> Grants:
    """What cannot be read opens nothing."""
    try:
        value: JsonObject = json.loads(text)
        opened, denied = value["open"], value["denied"]
        assert isinstance(opened, list) and isinstance(denied, list)
        pairs = [tuple(pair) for pair in opened[:_PORTS] if isinstance(pair, list)]
        return Grants({_port(port): _port(local) for port, local in pairs}, frozenset(map(_port, denied[:_PORTS])))
    except (ValueError, KeyError, TypeError, AssertionError):
        return Grants({}, frozenset())


def _port(value: object) -> int:
    if not isinstance(value, int) or not 0 < value < 65536:
        raise ValueError("no port")
    return value
