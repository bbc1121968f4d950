"""How often somebody may be wrong about a token (attacks W3 and W4)."""

from dataclasses import dataclass, field, replace
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
    """The counter of one source."""

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

    def is_forgettable(self, now: MonoTime) -> bool:
        """It holds nobody up and counts nothing."""
        return not self.is_locked(now) and now >= self.window_ends

    def succeeded(self) -> "Lockout":
        """A good credential ends the count, but not the memory of earlier lock-outs."""
        return replace(self, failures=0)


SOURCES_KEPT: Final = 1024
"""A user of this machine each, or an address; far more than one person's programs come from."""


@dataclass(slots=True)
class Lockouts:
    """One counter per source, so that nobody's guesses hold up anybody else."""

    _sources: dict[str, Lockout] = field(default_factory=dict)

    def is_locked(self, source: str, now: MonoTime) -> bool:
        known = self._sources.get(source)
        return known is not None and known.is_locked(now)

    def failed(self, source: str, now: MonoTime) -> float | None:
        """A credential was wrong. The seconds for which that locks this source, when it does."""
        after = self._sources.pop(source, Lockout()).failed(now)
        if len(self._sources) >= SOURCES_KEPT:
            self._forget(now)
        self._sources[source] = after
        return after.locked_until - now if after.is_locked(now) else None

    def succeeded(self, source: str) -> None:
        known = self._sources.get(source)
        if known is not None:
            self._sources[source] = known.succeeded()

    def _forget(self, now: MonoTime) -> None:
        """One that holds nobody up, or else the one unheard of for longest, which stands first."""
        idle = next((source for source, known in self._sources.items() if known.is_forgettable(now)), None)
        del self._sources[idle if idle is not None else next(iter(self._sources))]
