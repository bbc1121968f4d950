"""The uplink's decisions, without a socket or a clock."""

import pytest

from lodger_daemon.uplink.core.closing import CloseMeaning, meaning_of
from lodger_daemon.uplink.core.heartbeat import Beat, HeartbeatState, on_tick
from lodger_daemon.uplink.core.retry import (
    RETRY_AFTER_CAP_S,
    SLOW,
    SLOW_WINDOW_CAP_S,
    WINDOW_CAP_S,
    Failure,
    RetryState,
    after_failure,
    after_link,
    failure_of_status,
    parse_retry_after,
)
from lodger_daemon.uplink.core.wake import ClockReading, Gap, gap_between


@pytest.mark.parametrize("failure", list(Failure))
def test_windows_double_to_their_cap_and_never_end(failure: Failure) -> None:
    first, cap = (10.0, SLOW_WINDOW_CAP_S) if failure in SLOW else (1.0, WINDOW_CAP_S)
    state, delays = RetryState(), []
    for _ in range(100):
        plan = after_failure(state, failure, chance=0.5)
        state = plan.state
        delays.append(plan.delay_s)
    # The half of the last window that was not waited and the half of this one.
    windows = [min(first * 2.0**number, cap) for number in range(100)]
    expected = [windows[0] / 2] + [(windows[n - 1] + windows[n]) / 2 for n in range(1, 100)]
    assert delays == expected


@pytest.mark.parametrize(("chance", "delay"), [(0.0, 0.0), (0.25, 0.25), (0.999, 0.999)])
def test_the_first_try_is_anywhere_in_its_window(chance: float, delay: float) -> None:
    assert after_failure(RetryState(), Failure.CLOSED, chance=chance).delay_s == delay


@pytest.mark.parametrize(
    ("asked", "delay"), [(5.0, 5.5), (0.0, 0.5), (-3.0, 0.5), (1e9, RETRY_AFTER_CAP_S + 0.5), (None, 0.5)]
)
def test_retry_after_is_a_floor_with_a_cap(asked: float | None, delay: float) -> None:
    assert after_failure(RetryState(), Failure.BUSY, chance=0.5, retry_after_s=asked).delay_s == delay


@pytest.mark.parametrize(
    ("status", "failure"),
    [
        (401, Failure.TOKEN),
        (403, Failure.REFUSED),
        (404, Failure.REFUSED),
        (410, Failure.REFUSED),
        (429, Failure.BUSY),
        (500, Failure.SERVER),
        (502, Failure.SERVER),
        (302, Failure.NOT_A_HUB),
    ],
)
def test_statuses_have_a_class(status: int, failure: Failure) -> None:
    assert failure_of_status(status) is failure


def test_only_a_useful_link_starts_the_windows_afresh() -> None:
    tired = RetryState(7, 3.0)
    assert after_link(tired, lasted_s=10.0, answered=True) == RetryState()
    assert after_link(tired, lasted_s=9.9, answered=True) == tired
    assert after_link(tired, lasted_s=600.0, answered=False) == tired


def test_accept_then_close_does_not_spin() -> None:
    state, passed = RetryState(), 0.0
    dials = 0
    while passed < 3600:
        state = after_link(state, lasted_s=0.01, answered=True)
        plan = after_failure(state, Failure.CLOSED, chance=0.3)
        state, passed, dials = plan.state, passed + plan.delay_s, dials + 1
    assert dials < 70


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("2", 2.0),
        (" 7 ", 7.0),
        ("soon", None),
        ("", None),
        ("9" * 40, None),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 90.0),
        ("Thu, 01 Jan 1970 00:00:05 GMT", 0.0),
    ],
)
def test_retry_after_is_seconds_or_a_date(header: str | None, seconds: float | None) -> None:
    assert parse_retry_after(header, 10.0) == seconds


def test_r6_silence_is_known_after_three_probes() -> None:
    state, beats = HeartbeatState(), []
    for _ in range(5):
        state, beat = on_tick(state)
        beats.append(beat)
    assert beats == [Beat.PROBE] * 3 + [Beat.DEAD] * 2


def test_r6_an_answer_between_probes_keeps_the_link_for_ever() -> None:
    state = HeartbeatState()
    for _ in range(1000):
        state, beat = on_tick(state)
        assert beat is Beat.PROBE
        state = state.heard()


def test_r7_after_a_wake_two_quick_probes_decide() -> None:
    state, beats = HeartbeatState(unanswered=3).woke(), []
    for _ in range(3):
        state, beat = on_tick(state)
        beats.append(beat)
    assert beats == [Beat.PROBE, Beat.PROBE, Beat.DEAD]
    assert state.heard() == HeartbeatState()


@pytest.mark.parametrize(
    ("wall", "mono", "gap"),
    [
        (28800.0, 0.0, Gap.SLEPT),
        (600.0, 600.0, Gap.SLEPT),
        (22.5, 2.0, Gap.SLEPT),
        (22.0, 22.0, Gap.HELD_UP),
        (5.0, 5.0, Gap.HELD_UP),
        (4.0, 4.0, Gap.NONE),
        (2.0, 2.0, Gap.NONE),
        (-3600.0, 2.0, Gap.NONE),
        (-3600.0, 7.0, Gap.HELD_UP),
    ],
)
def test_r7_a_gap_is_seen_on_either_clock(wall: float, mono: float, gap: Gap) -> None:
    assert gap_between(ClockReading(1e9, 50.0), ClockReading(1e9 + wall, 50.0 + mono)) is gap


@pytest.mark.parametrize(
    ("code", "reason", "meaning"),
    [
        (1000, "Replaced by new connection", CloseMeaning.SUPERSEDED),
        (1000, "replaced by new connection", CloseMeaning.TRANSIENT),
        (1000, "", CloseMeaning.TRANSIENT),
        (1008, "whatever", CloseMeaning.LEASE_UNKNOWN),
        (1001, "", CloseMeaning.TRANSIENT),
        (1006, "", CloseMeaning.TRANSIENT),
        (1011, "Replaced by new connection", CloseMeaning.TRANSIENT),
        (4001, "", CloseMeaning.TRANSIENT),
        (4401, "", CloseMeaning.TRANSIENT),
    ],
)
def test_close_codes(code: int, reason: str, meaning: CloseMeaning) -> None:
    assert meaning_of(code, reason) is meaning
