"""The memory of this daemon: at its hub, or at git hosts that the settings name, with their tokens from where the
person stored them."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final

from lodger_daemon.clock import Clock
from lodger_daemon.memory.core.git_addresses import parse_git_address
from lodger_daemon.memory.memory import Memory
from lodger_daemon.memory.mirror import Mirror
from lodger_daemon.memory.remote import ForeignRemote
from lodger_daemon.memory.shared_memories import SharingPlaces
from lodger_daemon.memory.shared_remote import SharingHub
from lodger_daemon.models.keys import KeyRefused, KeyStore
from lodger_daemon.paths import Paths
from lodger_daemon.randomness import Rng
from lodger_daemon.service.box_requests import BoxRequests
from lodger_daemon.service.link import Hub
from lodger_daemon.service.options import DaemonOptions
from lodger_daemon.service.settings import Settings
from lodger_protocol.shared_names import shared_name_fault
from lodger_tools.box.contract import BoxKey
from lodger_tools.box.manager import BoxManager


class MemoryHost(StrEnum):
    """What a host is for; its name among the stored keys is `memory-` and this."""

    REMOTE = "remote"
    MIRROR = "mirror"


_VARIABLES: Final = {
    MemoryHost.REMOTE: ("LODGER_MEMORY_REMOTE_TOKEN",),
    MemoryHost.MIRROR: ("LODGER_MEMORY_MIRROR_TOKEN",),
}


def key_name(host: MemoryHost) -> str:
    return f"memory-{host}"


def memory_host(host: MemoryHost, address: str, paths: Paths, environment: Mapping[str, str]) -> ForeignRemote | None:
    """None when no address is set. The token is read anew for each command, so that a changed one holds at once."""
    if not address:
        return None
    keys = KeyStore(paths.secrets, environment)

    def token() -> str | None:
        try:
            key = keys.read(key_name(host), _VARIABLES[host])
        except (KeyRefused, OSError):
            return None
        return None if key is None else key.value

    return ForeignRemote(parse_git_address(address), token, environment.get("SSH_AUTH_SOCK", ""))


def make_memory(
    options: DaemonOptions,
    settings: Settings,
    hub: Hub | None,
    boxes: BoxManager,
    requests: BoxRequests,
    workspace: Path,
    clock: Clock,
    rng: Rng,
) -> Memory:
    """A host that the settings name comes before the hub. What agents share is at the hub."""
    remote = memory_host(MemoryHost.REMOTE, settings.memory.remote, options.paths, options.environment)
    mirror = memory_host(MemoryHost.MIRROR, settings.memory.mirror, options.paths, options.environment)
    sharing = None
    if hub is not None:
        sharing = SharingPlaces(
            SharingHub(hub.memory_remote(), shared_name_fault),
            requests.shared_inside,
            boxes.retire_changed,
            requests.owner(),
        )
    return Memory(
        options.paths,
        boxes,
        lambda agent_id: BoxKey(agent_id, str(workspace)),
        remote or (hub.memory_remote() if hub is not None else None),
        clock,
        rng,
        checkout_inside=requests.memory_inside,
        box_owner=requests.owner(),
        mirror=None if mirror is None else Mirror(mirror, clock, rng),
        sharing=sharing,
    )
