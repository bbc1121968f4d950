"""Randomness as an argument: jitter and identifiers come from one source, which a test seeds."""

import random
import uuid
from typing import Protocol


class Rng(Protocol):
    """What the rooms need of chance."""

    def random(self) -> float:
        """A number in [0, 1)."""
        ...

    def uuid(self) -> str:
        """A fresh random UUID in its usual text form."""
        ...


class SystemRng:
    """The real source. Not for secrets: those come from `secrets`."""

    def random(self) -> float:
        return random.random()  # noqa: S311 - jitter, not a secret

    def uuid(self) -> str:
        return str(uuid.uuid4())


class SeededRng:
    """The same numbers and identifiers for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - jitter, not a secret

    def random(self) -> float:
        return self._random.random()

    def uuid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))
