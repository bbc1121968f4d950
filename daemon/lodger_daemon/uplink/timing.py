"""The uplink's intervals, as an argument so that tests can shorten them."""

from dataclasses import dataclass

from lodger_daemon.uplink.core.heartbeat import PROBE_INTERVAL_S, WAKE_PROBE_INTERVAL_S
from lodger_daemon.uplink.core.wake import CHECK_INTERVAL_S


@dataclass(frozen=True, slots=True)
class UplinkTiming:
    probe_interval_s: float = PROBE_INTERVAL_S
    wake_probe_interval_s: float = WAKE_PROBE_INTERVAL_S
    wake_check_s: float = CHECK_INTERVAL_S
    send_limit_s: float = 30.0
    """A frame not taken for so long means a path that no longer carries anything."""
    ready_limit_s: float = 30.0
    """The peer's limit for the acknowledgement of a paired socket (PROTOCOL.md 1.2)."""
    place_look_s: float = 60.0
    """How often a superseded uplink looks whether its place is free again."""
    time_scale: float = 1.0
    """Factor on every planned wait between tries."""
