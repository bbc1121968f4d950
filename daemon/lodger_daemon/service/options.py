"""What the command line tells the daemon."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lodger_daemon.paths import Paths
from lodger_daemon.service.notify import SILENT, Notifier
from lodger_daemon.uplink.timing import UplinkTiming


@dataclass(frozen=True, slots=True)
class ListenOptions:
    """The app-server's own address, and how strangers prove themselves there."""

    url: str
    """`ws://HOST:PORT`; port 0 takes any free one."""
    auth: str = ""
    token_file: str = ""
    token_sha256: str = ""


@dataclass(frozen=True, slots=True)
class DaemonOptions:
    paths: Paths
    environment: Mapping[str, str]
    host_name: str
    hub_url: str = ""
    """Instead of the setting."""
    hub_token_file: str = ""
    listen: ListenOptions | None = None
    notifier: Notifier = SILENT
    uplink_timing: UplinkTiming = field(default_factory=UplinkTiming)
