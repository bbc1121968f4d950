"""How each model's latest steps ended, since this daemon started: for status and doctor, not for decisions."""

from dataclasses import dataclass, replace
from typing import Final

from lodger_daemon.clock import Clock, WallTime
from lodger_daemon.models.contract import FailureKind, ModelFailure

KEPT: Final = 64
"""Models remembered; more are used only by a client that makes handles up."""
SHOWN_CHARACTERS: Final = 300


@dataclass(frozen=True, slots=True)
class ModelOutcome:
    """Of one handle. An instant is None when that never happened."""

    handle: str
    succeeded_at: WallTime | None = None
    failed_at: WallTime | None = None
    failure: FailureKind | None = None
    message: str = ""
    """The latest failure's words, cut."""


class Outcomes:
    """Event loop only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._by_handle: dict[str, ModelOutcome] = {}

    def succeeded(self, handle: str) -> None:
        self._keep(replace(self._of(handle), succeeded_at=self._clock.wall()))

    def failed(self, handle: str, failure: ModelFailure) -> None:
        message = failure.message[:SHOWN_CHARACTERS]
        known = self._of(handle)
        self._keep(replace(known, failed_at=self._clock.wall(), failure=failure.kind, message=message))

    def all(self) -> tuple[ModelOutcome, ...]:
        """The one used last comes first."""
        return tuple(reversed(self._by_handle.values()))

    def _of(self, handle: str) -> ModelOutcome:
        return self._by_handle.get(handle, ModelOutcome(handle))

    def _keep(self, outcome: ModelOutcome) -> None:
        self._by_handle.pop(outcome.handle, None)
        self._by_handle[outcome.handle] = outcome
        while len(self._by_handle) > KEPT:
            del self._by_handle[next(iter(self._by_handle))]
