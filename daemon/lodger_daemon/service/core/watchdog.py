"""When the service manager's watchdog is fed (ARCHITECTURE.md section 10.3), and what it is told."""

from dataclasses import dataclass
from typing import Final, assert_never

from lodger_daemon.uplink.core.status import UplinkState, UplinkStatus

LATE_LIMIT_S: Final = 5.0
"""A loop that comes back to a waiting task later than this answers no client in time."""
SILENT_HEARTBEATS: Final = 2
"""A link that shows itself connected and has heard nothing for so many probes is no longer believed."""
ATTEMPT_LIMIT_S: Final = 120.0
"""Registering and dialling have limits of their own, 45 s at the most; a try this old has escaped them."""


@dataclass(frozen=True, slots=True)
class Fed:
    pass


@dataclass(frozen=True, slots=True)
class Withheld:
    reason: str


Feeding = Fed | Withheld


def judge(late_s: float, uplink: UplinkStatus | None, now_wall: float, heartbeat_s: float) -> Feeding:
    """Whether to feed.

    Args:
        late_s: how much later than planned the loop came back to the task that asks.
        uplink: None when no hub is configured.
        heartbeat_s: the uplink's time between two probes.
    """
    if late_s > LATE_LIMIT_S:
        return Withheld(f"the event loop was {late_s:.0f} s late")
    if uplink is None:
        return Fed()
    match uplink.state:
        case UplinkState.CONNECTED:
            age_s = uplink.last_contact_age_s
            if age_s is not None and age_s > SILENT_HEARTBEATS * heartbeat_s:
                return Withheld(f"the hub counts as connected and was silent for {age_s:.0f} s")
            return Fed()
        case UplinkState.STOPPED | UplinkState.REGISTERING | UplinkState.DIALLING:
            hung_s = now_wall - uplink.since
            if hung_s > ATTEMPT_LIMIT_S:
                return Withheld(f"the uplink made no step for {hung_s:.0f} s ({uplink.state.value})")
            return Fed()
        case UplinkState.WAITING | UplinkState.SUPERSEDED:
            return Fed()
        case _:
            assert_never(uplink.state)


def is_moving(uplink: UplinkStatus | None) -> bool:
    """Whether the uplink takes a step that soon ends in another state."""
    return uplink is not None and uplink.state in (
        UplinkState.STOPPED,
        UplinkState.REGISTERING,
        UplinkState.DIALLING,
    )


def status_words(uplink: UplinkStatus | None) -> str:
    """One line for `systemctl status`. It changes only when the state does: ages would make every line a new one."""
    if uplink is None:
        return "Serving this machine; no hub is configured"
    reason = f" ({uplink.reason})" if uplink.reason else ""
    state = "starting" if uplink.state is UplinkState.STOPPED else uplink.state.value
    return f"Hub {uplink.hub_url}: {state}{reason}"
