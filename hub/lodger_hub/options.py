"""What a hub is started with."""

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lodger_hub.errors import UnsafeListener

DEFAULT_PORT: Final = 7433

MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class RelayLimits:
    """Bounds of the relay. All are settings so that tests can use small ones."""

    machine_frame_bytes: int = 36 * MIB
    """A 25 MiB file in base64 (PROTOCOL.md 4.5) and its frame around it."""
    client_frame_bytes: int = 16 * MIB
    queue_frames: int = 4096
    queue_bytes: int = 16 * MIB
    """The peer's own limit for a transport that does not drain (BEHAVIOUR.md A17)."""
    send_limit_s: float = 60.0
    machine_silence_s: float = 300.0
    """Twice and a half the two minutes after which clients show a machine as offline. TCP keep-alive finds a dead
    path sooner; this is for paths through a proxy, and long enough that a busy daemon is not cut."""
    clients_per_machine: int = 64


@dataclass(frozen=True, slots=True)
class HubOptions:
    state: Path
    """Private folder of the hub: store, tokens, repositories."""
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    """0 takes a free one; the ready line names it."""
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    public_names: frozenset[str] = frozenset()
    """Host names, beside this machine's addresses, under which the hub is reached."""
    limits: RelayLimits = field(default_factory=RelayLimits)

    @property
    def secure(self) -> bool:
        return self.tls_certificate is not None

    def check(self) -> None:
        """Raises: UnsafeListener."""
        if not self.secure and not is_loopback(self.host):
            raise UnsafeListener(self.host)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
