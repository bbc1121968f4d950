"""When to try again, whatever went wrong. It never says "never"."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

WINDOW_FIRST_S: Final = 1.0
WINDOW_CAP_S: Final = 60.0
SLOW_WINDOW_FIRST_S: Final = 10.0
"""For refusals that need a person: often enough that a mended token is noticed soon, seldom enough not to be noise."""
SLOW_WINDOW_CAP_S: Final = 120.0
RETRY_AFTER_CAP_S: Final = 300.0
"""A hub that asks for more (or lies) is asked again after five minutes, as the peer re-registers."""
USEFUL_AFTER_S: Final = 10.0
"""A link must have answered and lasted this long before its loss starts the windows afresh; one that is accepted and
closed again does not, or it would be dialled without end."""


class Failure(StrEnum):
    """What kind of trouble a try met."""

    NETWORK = "network"
    TLS = "tls"
    BUSY = "busy"
    """429."""
    SERVER = "server"
    """5xx."""
    TOKEN = "token"  # noqa: S105 - a kind of trouble, no secret
    """401: the hub does not know this machine's token, or no longer. Joining again gives it a new one."""
    REFUSED = "refused"
    """4xx but 401 and 429."""
    NOT_A_HUB = "not_a_hub"
    """An answer that no hub gives: a captive portal's page, a redirect, a wrong address."""
    CLOSED = "closed"
    """The link was up and ended."""
    SILENT = "silent"
    """The link was up and did not answer."""
    LEASE_UNKNOWN = "lease_unknown"


SLOW: Final = frozenset({Failure.TOKEN, Failure.REFUSED, Failure.NOT_A_HUB, Failure.TLS})


def failure_of_status(status: int) -> Failure:
    """The class of an HTTP answer that is no success."""
    if status == 429:
        return Failure.BUSY
    if status == 401:
        return Failure.TOKEN
    if 400 <= status < 500:
        return Failure.REFUSED
    if status >= 500:
        return Failure.SERVER
    return Failure.NOT_A_HUB


@dataclass(frozen=True, slots=True)
class RetryState:
    """How often it has failed in a row, and what is left of the last window."""

    failures: int = 0
    rest_of_window_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Wait:
    state: RetryState
    delay_s: float


def after_failure(state: RetryState, failure: Failure, *, chance: float, retry_after_s: float | None = None) -> Wait:
    """How long to wait now. `chance` in [0, 1) picks the moment inside this try's window; what remains of a window is
    waited out before the next begins, so that many machines keep spread out and the mean rate holds."""
    slow = failure in SLOW
    first, cap = (SLOW_WINDOW_FIRST_S, SLOW_WINDOW_CAP_S) if slow else (WINDOW_FIRST_S, WINDOW_CAP_S)
    window = min(first * 2.0 ** min(state.failures, 16), cap)
    moment = window * chance
    delay = state.rest_of_window_s + moment
    if retry_after_s is not None and retry_after_s > 0:
        # Spread behind the asked moment: everyone was told the same one.
        delay = max(delay, min(retry_after_s, RETRY_AFTER_CAP_S) + moment)
    return Wait(RetryState(state.failures + 1, window - moment), delay)


def after_link(state: RetryState, *, lasted_s: float, answered: bool) -> RetryState:
    """The state with which a lost link's failure is judged."""
    if answered and lasted_s >= USEFUL_AFTER_S:
        return RetryState()
    return replace(state, rest_of_window_s=min(state.rest_of_window_s, WINDOW_CAP_S))


def parse_retry_after(header: str | None, now_wall: float) -> float | None:
    """Seconds from a Retry-After header, which may be a number or a date; nothing when it is neither."""
    if header is None:
        return None
    text = header.strip()
    if text.isdecimal() and len(text) < 10:
        return float(text)
    from email.utils import parsedate_to_datetime  # costs 5 ms, and dates are rare

    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now_wall)
    except (ValueError, TypeError, OverflowError):
        return None
