"""Permission modes (ARCHITECTURE.md section 3). Values are words of the wire."""

from enum import StrEnum
from typing import Final


class Mode(StrEnum):
    STRICT = "strict"
    """Asks for every command and every write."""
    STANDARD = "standard"
    """What the box fully contains runs; leaving it asks."""
    ACCEPT_EDITS = "acceptEdits"
    UNRESTRICTED = "unrestricted"


WIDENING_ORDER: Final = (Mode.STRICT, Mode.STANDARD, Mode.ACCEPT_EDITS, Mode.UNRESTRICTED)
"""From the narrowest to the widest. A ceiling set on the machine allows itself and whatever stands before it."""


def within_ceiling(mode: Mode, ceiling: Mode) -> bool:
    """Whether a client may choose this mode on a machine with that ceiling."""
    return WIDENING_ORDER.index(mode) <= WIDENING_ORDER.index(ceiling)
