"""The daemon's hub: its address, the machine's token for it, and the link and memory remote made of them."""

import asyncio
import platform
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never
from urllib.parse import urlsplit

from lodger_daemon.clients.peers import PortOwner, owner_of_port
from lodger_daemon.clients.router import Router
from lodger_daemon.clock import Clock
from lodger_daemon.memory.remote import MemoryRemote
from lodger_daemon.ports.sharing import HubAddress
from lodger_daemon.randomness import Rng
from lodger_daemon.service.options import DaemonOptions
from lodger_daemon.service.settings import Settings
from lodger_daemon.uplink.link import Uplink
from lodger_daemon.uplink.registration import make_tls
from lodger_daemon.uplink.router import HubHearer
from lodger_daemon.uplink.timing import UplinkTiming
from lodger_daemon.version import VERSION


@dataclass(frozen=True, slots=True)
class Hub:
    """Where the control plane is. The token is read anew for each use, so that a rotated one holds at once."""

    url: str
    token_file: Path
    ca_file: Path | None = None
    """What vouches for it; the system's authorities when None."""

    def token(self) -> str:
        """For a hub whose port may have it. Blocking. Raises: ConnectionRefusedError, OSError, LookupError."""
        match self.port_owner():
            case PortOwner.STRANGER:
                raise LookupError(f"the port of {self.url} belongs to another user of this machine, who gets no token")
            case PortOwner.NOBODY:
                # Whoever came next could be anybody.
                raise ConnectionRefusedError(f"nobody listens at {self.url}")
            case PortOwner.OURS | PortOwner.UNKNOWN:
                return self._read_token()
            case other:
                assert_never(other)

    def port_owner(self) -> PortOwner:
        """Who would get what is sent to this hub; not asked where a certificate answers for it. Blocking."""
        parts = urlsplit(self.url)
        return owner_of_port(parts.port or 80) if parts.scheme == "http" else PortOwner.OURS

    def _read_token(self) -> str:
        token = self.token_file.read_text("utf-8").strip()
        if not token:
            raise LookupError(f"{self.token_file} is empty")
        return token

    def memory_remote(self) -> MemoryRemote:
        def token_or_none() -> str | None:
            try:
                return self._read_token()
            except (OSError, LookupError):
                return None

        def is_trusted() -> bool:
            return self.port_owner() in (PortOwner.OURS, PortOwner.UNKNOWN)

        return MemoryRemote(self.url, token_or_none, is_trusted, self.ca_file)

    def address(self) -> HubAddress:
        """For connections beside the uplink."""

        async def token() -> str:
            return await asyncio.to_thread(self.token)

        return HubAddress(self.url.rstrip("/"), token, lambda: make_tls(self.ca_file))

    def uplink(
        self,
        device_id: str,
        name: str,
        router: Router,
        hearer: HubHearer,
        clock: Clock,
        rng: Rng,
        timing: UplinkTiming,
        memory_level_at: Callable[[], float | None],
    ) -> Uplink:
        """Raises: InsecureHubUrl."""

        async def token() -> str:
            return await asyncio.to_thread(self.token)

        metadata: dict[str, object] = {
            "lettaCodeVersion": VERSION,
            "lodgerVersion": VERSION,
            "os": platform.system().lower(),
            "supported_commands": ["compact", "reload"],
            "self_update": {"supported": False, "writable": False},
        }
        return Uplink(
            self.url,
            token,
            device_id,
            name,
            metadata,
            router,
            hearer,
            clock,
            rng,
            ca_file=self.ca_file,
            timing=timing,
            memory_level_at=memory_level_at,
        )


def find_hub(options: DaemonOptions, settings: Settings) -> Hub | None:
    """The command line's hub, else the setting's; None when neither names one."""
    url = options.hub_url or settings.hub.url
    token_file = options.hub_token_file or settings.hub.token_file
    ca_file = Path(settings.hub.ca_file).expanduser() if settings.hub.ca_file else None
    return Hub(url, Path(token_file), ca_file) if url and token_file else None
