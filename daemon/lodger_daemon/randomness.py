"""Randomness as an argument: jitter and identifiers come from one source, which a test seeds."""

import os
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
        # In a fraction of the time of `uuid.uuid4`: the envelope of each frame has one.
        digits = os.urandom(16).hex()
        variant = "89ab"[int(digits[16], 16) % 4]
        return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


class SeededRng:
    """The same numbers and identifiers for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - jitter, not a secret

    def random(self) -> float:
        return self._random.random()

    def uuid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))
