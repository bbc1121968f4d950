"""Telling the service manager how we are: the datagrams of sd_notify, without its library."""

import logging
import os
import socket
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Final, Self

SEND_LIMIT_S: Final = 2.0
"""A manager that takes nothing for so long is busy or gone; what we had to say is said again at the next occasion."""

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Notifier:
    """Says nothing when no service manager listens."""

    address: str = ""
    """As in NOTIFY_SOCKET: a path, or `@` and an abstract name."""
    watchdog_s: float | None = None
    """The manager acts when it was not fed for so long; None when it does not watch."""

    @classmethod
    def take(cls, environment: MutableMapping[str, str], pid: int) -> Self:
        """Read what the manager asks for, and remove it: no child of ours shall speak in our name."""
        address = environment.pop("NOTIFY_SOCKET", "")
        interval_us = environment.pop("WATCHDOG_USEC", "")
        meant_for = environment.pop("WATCHDOG_PID", "")
        if not address.startswith(("/", "@")):
            return cls()
        watched = interval_us.isdecimal() and int(interval_us) > 0 and meant_for in ("", str(pid))
        return cls(address, int(interval_us) / 1e6 if watched else None)

    def tell(self, *assignments: str) -> None:
        """Send one message, such as `READY=1`. Blocking, at most `SEND_LIMIT_S`; a failure is only logged."""
        if not self.address:
            return
        name = os.fsencode(self.address)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.settimeout(SEND_LIMIT_S)
                sender.connect(b"\0" + name[1:] if name.startswith(b"@") else name)
                sender.send("\n".join(assignments).encode())
        except OSError as error:
            _LOG.warning("the service manager could not be told %s: %s", assignments[0], error)


SILENT: Final = Notifier()
