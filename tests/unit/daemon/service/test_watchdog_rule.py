"""The rule by which the watchdog is fed (ARCHITECTURE.md section 10.3, ATTACKS.md R14)."""

import pytest

from lodger_daemon.service.core.watchdog import (
    ATTEMPT_LIMIT_S,
    LATE_LIMIT_S,
    Fed,
    Feeding,
    Withheld,
    is_moving,
    judge,
    status_words,
)
from lodger_daemon.uplink.core.status import UplinkState, UplinkStatus
from lodger_daemon.uplink.dial import OPEN_LIMIT_S
from lodger_daemon.uplink.registration import REQUEST_LIMIT_S
from lodger_daemon.uplink.timing import UplinkTiming

NOW, HEARTBEAT_S = 10_000.0, 20.0


def uplink(state: UplinkState, *, age_s: float | None = 1.0, since: float = NOW, reason: str = "") -> UplinkStatus:
    contact = None if age_s is None else NOW - age_s
    return UplinkStatus("https://hub", state, since, reason or None, contact, age_s, None, 0, None, 0)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (None, Fed()),
        (uplink(UplinkState.CONNECTED, age_s=0), Fed()),
        (uplink(UplinkState.CONNECTED, age_s=None), Fed()),
        (uplink(UplinkState.CONNECTED, age_s=40), Fed()),
        (
            uplink(UplinkState.CONNECTED, age_s=40.1),
            Withheld("the hub counts as connected and was silent for 40 s"),
        ),
        (uplink(UplinkState.WAITING, age_s=9e5, since=0), Fed()),
        (uplink(UplinkState.WAITING, age_s=None), Fed()),
        (uplink(UplinkState.SUPERSEDED, age_s=9e5, since=0), Fed()),
        *(
            (uplink(state, age_s=9e5, since=NOW - ATTEMPT_LIMIT_S), Fed())
            for state in (UplinkState.STOPPED, UplinkState.REGISTERING, UplinkState.DIALLING)
        ),
        (
            uplink(UplinkState.DIALLING, since=NOW - 121),
            Withheld("the uplink made no step for 121 s (dialling)"),
        ),
        (
            uplink(UplinkState.STOPPED, since=NOW - 500),
            Withheld("the uplink made no step for 500 s (stopped)"),
        ),
    ],
)
def test_what_the_uplink_says_decides(status: UplinkStatus | None, expected: Feeding) -> None:
    assert judge(0.0, status, NOW, HEARTBEAT_S) == expected


def test_a_late_loop_is_not_fed_whatever_the_uplink_says() -> None:
    late = LATE_LIMIT_S + 1
    assert judge(LATE_LIMIT_S, None, NOW, HEARTBEAT_S) == Fed()
    assert judge(late, None, NOW, HEARTBEAT_S) == Withheld("the event loop was 6 s late")
    assert isinstance(judge(late, uplink(UplinkState.WAITING), NOW, HEARTBEAT_S), Withheld)


def test_no_honest_try_reaches_the_limit_of_a_try() -> None:
    assert REQUEST_LIMIT_S < ATTEMPT_LIMIT_S
    assert 2 * OPEN_LIMIT_S + UplinkTiming().ready_limit_s < ATTEMPT_LIMIT_S


def test_the_status_line_changes_with_the_state_alone() -> None:
    assert status_words(None) == "Serving this machine; no hub is configured"
    assert status_words(uplink(UplinkState.CONNECTED, age_s=3)) == "Hub https://hub: connected"
    assert status_words(uplink(UplinkState.WAITING, reason="it refused")) == "Hub https://hub: waiting (it refused)"
    moving = {state for state in UplinkState if is_moving(uplink(state))}
    assert moving == {UplinkState.STOPPED, UplinkState.REGISTERING, UplinkState.DIALLING}
    assert not is_moving(None)
