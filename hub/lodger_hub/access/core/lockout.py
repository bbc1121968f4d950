"""When a source of wrong credentials is no longer listened to.

A guess at a random token cannot succeed; the lock keeps a guesser from costing the machine anything and makes the
attempt visible. A source that has shown a good token before keeps working with that token while it is locked, or any
other process on the same address could shut the daemon out.
"""

from dataclasses import dataclass, field
from typing import Final

WRONG_ATTEMPTS: Final = 10
"""In `WINDOW_S`; a person with an old token in a few windows stays below it."""
WINDOW_S: Final = 60.0
LOCK_S: Final = 60.0
SOURCES_KEPT: Final = 4096


@dataclass(slots=True)
class _Source:
    window_began_at: float
    wrong: int = 0
    locked_until: float = 0.0
    proven: frozenset[bytes] = frozenset()


@dataclass(slots=True)
class Lockout:
    """Counts per source address. Times are monotonic seconds given by the caller."""

    attempts: int = WRONG_ATTEMPTS
    window_s: float = WINDOW_S
    lock_s: float = LOCK_S
    _sources: dict[str, _Source] = field(default_factory=dict)

    def wait_s(self, source: str, digest: bytes | None, now: float) -> float:
        """How long this source has to wait before a credential with this digest is looked at; 0 when it has not."""
        known = self._sources.get(source)
        if known is None or known.locked_until <= now or (digest is not None and digest in known.proven):
            return 0.0
        return known.locked_until - now

    def wrong(self, source: str, now: float) -> bool:
        """Note a wrong credential; true when this one closed the lock."""
        known = self._source(source, now)
        if now - known.window_began_at > self.window_s:
            known.window_began_at, known.wrong = now, 0
        known.wrong += 1
        if known.wrong < self.attempts or known.locked_until > now:
            return False
        known.locked_until = now + self.lock_s
        known.window_began_at, known.wrong = now, 0
        return True

    def not_wrong(self, source: str, *, closed: bool) -> None:
        """Take one `wrong` back, with what it returned: for attempts that are counted before they are looked at."""
        known = self._sources.get(source)
        if known is None:
            return
        if closed:
            known.locked_until, known.wrong = 0.0, self.attempts
        known.wrong = max(0, known.wrong - 1)

    def right(self, source: str, digest: bytes, now: float) -> None:
        known = self._source(source, now)
        if digest not in known.proven:
            known.proven = frozenset([*known.proven, digest])

    def forget_proof(self, digest: bytes) -> None:
        """A revoked token proves nothing any more."""
        for known in self._sources.values():
            known.proven -= {digest}

    def _source(self, source: str, now: float) -> _Source:
        known = self._sources.pop(source, None) or _Source(window_began_at=now)
        # Behind the others again: the first of the dictionary is the one unheard of for longest.
        self._sources[source] = known
        if len(self._sources) > SOURCES_KEPT:
            del self._sources[next(iter(self._sources))]
        return known
