"""How often somebody may be wrong about a token (attacks W3 and W4)."""

from dataclasses import dataclass, replace
from typing import Final

from lodger_daemon.clock import MonoTime

FREE_FAILURES: Final = 10
"""A person with an old token retries a few times; a guesser needs many."""

WINDOW_S: Final = 60.0
"""Failures further apart than this do not add up."""

FIRST_LOCK_S: Final = 30.0
LONGEST_LOCK_S: Final = 900.0
"""Each lock-out doubles, up to a quarter of an hour: 96 windows of 10 guesses a day against 256 bits."""


_NEVER: Final = MonoTime(0.0)


@dataclass(frozen=True, slots=True)
class Lockout:
    """One counter for all who come with a credential: loopback has no addresses to tell them apart by."""

    failures: int = 0
    window_ends: MonoTime = _NEVER
    locked_until: MonoTime = _NEVER
    locks: int = 0

    def is_locked(self, now: MonoTime) -> bool:
        return now < self.locked_until

    def failed(self, now: MonoTime) -> "Lockout":
        """A credential was wrong."""
        fresh = now >= self.window_ends
        failures = 1 if fresh else self.failures + 1
        if failures < FREE_FAILURES:
            window_ends = MonoTime(now + WINDOW_S) if fresh else self.window_ends
            return replace(self, failures=failures, window_ends=window_ends)
        duration_s = min(FIRST_LOCK_S * 2**self.locks, LONGEST_LOCK_S)
        return Lockout(0, _NEVER, MonoTime(now + duration_s), min(self.locks + 1, 10))

    def succeeded(self) -> "Lockout":
        """A good credential ends the count, but not the memory of earlier lock-outs."""
        return replace(self, failures=0)
