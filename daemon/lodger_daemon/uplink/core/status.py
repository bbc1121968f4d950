"""What the uplink is doing, for people and for the watchdog."""

from dataclasses import dataclass
from enum import StrEnum

from lodger_daemon.uplink.core.retry import Failure


class UplinkState(StrEnum):
    STOPPED = "stopped"
    REGISTERING = "registering"
    DIALLING = "dialling"
    CONNECTED = "connected"
    WAITING = "waiting"
    """Between two tries, by its own plan."""
    SUPERSEDED = "superseded"
    """Another process took this device's place; it stays so until that one is gone, or until told to resume."""


@dataclass(frozen=True, slots=True)
class HubClock:
    """The hub's time beside ours, as its answer to the latest registration bore it."""

    ahead_s: float
    """How far this machine's wall clock is ahead; the hub says its time to the second, and the way takes a while."""
    at: float
    """Wall seconds of this machine."""


@dataclass(frozen=True, slots=True)
class UplinkStatus:
    """All times are wall seconds."""

    hub_url: str
    state: UplinkState
    since: float
    reason: str | None
    """Why it is in this state, in words; nothing when all is well."""
    last_contact_at: float | None
    last_contact_age_s: float | None
    next_attempt_at: float | None
    failures: int
    connection_id: str | None
    clients: int
    hub_clock: HubClock | None = None
    failure: Failure | None = None
    """What kind of trouble the latest try met; nothing when all is well."""
