"""Named moments of the git host beside its durable steps, so that a crash can be tried at each of them."""

from collections.abc import Callable
from typing import TypeAlias

Seam: TypeAlias = Callable[[str], None]
"""Called with the name of the moment, on whatever thread reaches it."""


def no_seam(name: str) -> None:
    """What a running hub uses."""
