"""What can go wrong between the daemon and its hub.

UplinkError
├── InsecureHubUrl      the address would send the token in the clear
├── AttemptFailed       one try did not succeed; the uplink waits and tries again
└── LinkLost            a frame could not be sent: the link has ended
"""

from lodger_daemon.uplink.core.retry import Failure


class UplinkError(Exception):
    """Base of the uplink's errors."""


class InsecureHubUrl(UplinkError):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url

    def __str__(self) -> str:
        return f"{self.url} is not usable as a hub's address: it must be https, or http on this machine's loopback"


class AttemptFailed(UplinkError):
    """One registration or dial that failed. Always worth another try."""

    def __init__(self, failure: Failure, reason: str, retry_after_s: float | None = None) -> None:
        super().__init__(failure, reason)
        self.failure = failure
        self.reason = reason
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return self.reason


class LinkLost(UplinkError, ConnectionError):
    def __str__(self) -> str:
        return "the connection to the hub has ended; the client will resume over the next one"
