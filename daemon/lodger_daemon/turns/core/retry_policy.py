"""The one retry policy (BEHAVIOUR.md A5, A6): which failures are tried again, how often and after which wait."""

from dataclasses import dataclass
from typing import Final

from lodger_daemon.models.contract import RETRYABLE, FailureKind
from lodger_daemon.turns.core.stop_reasons import StopReason

TRANSIENT_ATTEMPTS: Final = 3
TRANSIENT_BASE_S: Final = 1.0
EDGE_BASE_S: Final = 5.0
"""Errors 520-524 come from an edge in front of the provider and last longer."""
EDGE_STATUSES: Final = range(520, 525)
BUSY_BASE_S: Final = 10.0
BUSY_STATUS: Final = 409
"""Another request about the same thing is under way there; it takes as long as a step."""
EMPTY_ATTEMPTS: Final = 2
EMPTY_STEP_S: Final = 0.5
OVERFLOW_ATTEMPTS: Final = 3
RETRY_AFTER_CAP_S: Final = 60.0
JITTER_SHARE: Final = 0.25
"""A wait grows by up to a quarter, so that many conversations do not come back at one moment."""


@dataclass(frozen=True, slots=True)
class Retry:
    attempt: int
    max_attempts: int
    delay_s: float


def retry_transient(
    kind: FailureKind, status: int | None, retry_after_s: float | None, already: int, jitter: float
) -> Retry | None:
    """The next try after a provider's failure, or None when it must end the turn.

    Args:
        already: tries this step has used up.
        jitter: in [0, 1).
    """
    if kind not in RETRYABLE or already >= TRANSIENT_ATTEMPTS:
        return None
    delay_s = _base_s(status) * 2**already if retry_after_s is None else max(0.0, retry_after_s)
    return Retry(already + 1, TRANSIENT_ATTEMPTS, min(RETRY_AFTER_CAP_S, delay_s * (1 + JITTER_SHARE * jitter)))


def _base_s(status: int | None) -> float:
    if status == BUSY_STATUS:
        return BUSY_BASE_S
    return EDGE_BASE_S if status in EDGE_STATUSES else TRANSIENT_BASE_S


def retry_empty(already: int, jitter: float) -> Retry | None:
    """The next try after an answer without text and calls."""
    if already >= EMPTY_ATTEMPTS:
        return None
    return Retry(already + 1, EMPTY_ATTEMPTS, EMPTY_STEP_S * (already + 1) * (1 + JITTER_SHARE * jitter))


def stop_reason_of(kind: FailureKind) -> StopReason:
    """How a turn ends that this failure could not be kept from."""
    match kind:
        case FailureKind.QUOTA:
            return StopReason.INSUFFICIENT_CREDITS
        case FailureKind.CONTEXT_OVERFLOW:
            return StopReason.CONTEXT_WINDOW_OVERFLOW
        case FailureKind.AUTHENTICATION | FailureKind.BAD_REQUEST | FailureKind.UNKNOWN_MODEL:
            return StopReason.ERROR
        case _:
            return StopReason.LLM_API_ERROR
