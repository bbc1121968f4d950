"""Where people find the hub's page."""

from dataclasses import dataclass
from enum import StrEnum


class ReachKind(StrEnum):
    PUBLIC = "public"
    """The address of a proxy in front of the hub."""
    LAN = "lan"
    MACHINE = "machine"
    """Only from the hub's own machine."""


@dataclass(frozen=True, slots=True)
class Place:
    kind: ReachKind
    url: str
    """Without a slash at its end."""


@dataclass(frozen=True, slots=True)
class Reach:
    """What a hub says of itself once it listens. The farthest-reaching place comes first."""

    url: str
    """For programs on the hub's own machine."""
    places: tuple[Place, ...]
    fingerprint: str | None = None
    """SHA-256 of the certificate that the hub made itself, as browsers show it."""
