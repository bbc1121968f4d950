"""What the hub means by the way it closes the socket (PROTOCOL.md 1.5)."""

from enum import StrEnum
from typing import Final

NORMAL: Final = 1000
POLICY: Final = 1008
REPLACED_REASON: Final = "Replaced by new connection"


class CloseMeaning(StrEnum):
    SUPERSEDED = "superseded"
    """Another process holds this device's place: dialling again would only take it back and forth."""
    LEASE_UNKNOWN = "lease_unknown"
    """Register again; unlike the peer, nothing on this side is thrown away for it."""
    TRANSIENT = "transient"


def meaning_of(code: int, reason: str) -> CloseMeaning:
    if code == NORMAL and reason == REPLACED_REASON:
        return CloseMeaning.SUPERSEDED
    if code == POLICY:
        return CloseMeaning.LEASE_UNKNOWN
    return CloseMeaning.TRANSIENT
