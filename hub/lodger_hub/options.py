"""What a hub is started with."""

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lodger_hub.errors import BadAddress, UnsafeListener
from lodger_hub.store.contract import MailLimits

DEFAULT_PORT: Final = 8377

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
    acknowledge_s: float = 60.0
    """For a message out of a mailbox: an agent's first clone on the machine may stand in front of it."""
    mail_again_s: float = 60.0
    """Before an awake machine that did not acknowledge something is asked again."""


@dataclass(frozen=True, slots=True)
class LanListener:
    """A second listener, with TLS, for phones and other machines; the first then serves this machine on loopback."""

    host: str = "0.0.0.0"  # noqa: S104 - that is what it is for, and it speaks TLS only
    port: int | None = None
    """None takes the one behind the first listener's; 0 a free one."""
    certificate: Path | None = None
    """None makes one, kept in the state folder; its fingerprint is shown."""
    key: Path | None = None


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
    public_url: str | None = None
    """Where a proxy with a certificate (Caddy, Tailscale) shows this hub, such as https://hub.example."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses or networks of proxies beside those on this machine, whose X-Forwarded-For is believed. Only with a
    public address: without one there is no proxy, and whoever sends that header invents it."""
    lan: LanListener | None = None
    limits: RelayLimits = field(default_factory=RelayLimits)
    mail: MailLimits = field(default_factory=MailLimits)

    @property
    def secure(self) -> bool:
        return self.tls_certificate is not None

    def check(self) -> None:
        """Raises: UnsafeListener, BadAddress."""
        if (self.tls_certificate is None) is not (self.tls_key is None):
            raise BadAddress("a certificate needs its key, and a key its certificate: --tls-cert and --tls-key")
        if self.lan is not None and (self.lan.certificate is None) is not (self.lan.key is None):
            raise BadAddress("a certificate needs its key, and a key its certificate: --tls-cert and --tls-key")
        if not self.secure and not is_loopback(self.host):
            raise UnsafeListener(self.host)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
