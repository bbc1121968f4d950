"""What a later daemon has to know of a box's open ports, as text."""

import json
from dataclasses import dataclass

from lodger_daemon.ports.core.offers import is_port


class BadGrants(ValueError):
    """The text is not what `as_text` writes. Nothing may be opened on its word."""


@dataclass(frozen=True, slots=True)
class Grants:
    open: dict[int, int]
    """Local port by port of the box: what a person opened for as long as the box lives."""
    denied: frozenset[int]


def as_text(grants: Grants) -> str:
    stored = {"open": [[port, local] for port, local in grants.open.items()], "denied": sorted(grants.denied)}
    return json.dumps(stored)


def from_text(text: str) -> Grants:
    """All of it or nothing. Raises: BadGrants."""
    try:
        stored = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadGrants(f"no JSON: {error}") from None
    if not isinstance(stored, dict) or stored.keys() != {"open", "denied"}:
        raise BadGrants("not an object of `open` and `denied`")
    opened = dict(_pair(pair) for pair in _list("open", stored["open"]))
    denied = frozenset(_port(port) for port in _list("denied", stored["denied"]))
    if len(opened) != len(stored["open"]) or not denied.isdisjoint(opened):
        raise BadGrants("two things are said of one port")
    return Grants(opened, denied)


def _list(name: str, value: object) -> list[object]:
    if not isinstance(value, list):
        raise BadGrants(f"`{name}` is no list")
    return value


def _pair(value: object) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise BadGrants(f"{value!r:.40} is not the port of the box with the local one")
    return _port(value[0]), _port(value[1])


def _port(value: object) -> int:
    if not is_port(value):
        raise BadGrants(f"{value!r:.40} is no port")
    return value
