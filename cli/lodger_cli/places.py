"""Which daemon a command talks to: this machine's own, one started for the call, or one behind a hub."""

import contextlib
import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from lodger_cli.processes import Child
from lodger_cli.wire import WireClient, WireError
from lodger_daemon.clients.peers import PortOwner, owner_of_port
from lodger_daemon.paths import Paths, find_paths

HUB_RECORD: Final = "running.json"
"""Below the hub's state folder: where the hub that was last started here listens."""


class NoDaemon(WireError):
    """Nobody listens at this machine's socket."""


def paths() -> Paths:
    return find_paths(os.environ)


@dataclass(frozen=True, slots=True)
class HubPlace:
    url: str
    client_token: str
    machine_token_file: Path


def record_hub(folder: Path, url: str) -> None:
    """Let commands on this machine find the hub whose process this is."""
    temporary = folder / f".{HUB_RECORD}.{os.getpid()}"
    temporary.write_text(json.dumps({"url": url, "pid": os.getpid()}), "utf-8")
    temporary.replace(folder / HUB_RECORD)


def known_hub(where: Paths) -> HubPlace | None:
    """The hub of this machine, if one has been started here and its tokens can be read. None also when its port belongs
    to another user by now, who is not to get a token."""
    try:
        record = json.loads((where.hub / HUB_RECORD).read_text("utf-8"))
        token = (where.hub / "client.token").read_text("utf-8").strip()
        url = str(record["url"])
        parts = urlsplit(url)
        if parts.scheme == "http" and owner_of_port(parts.port or 80) is PortOwner.STRANGER:
            return None
        return HubPlace(url, token, where.hub / "machine.token")
    except (OSError, ValueError, KeyError):
        return None


@contextlib.asynccontextmanager
async def local_daemon(*, start: bool) -> AsyncIterator[WireClient]:
    """A connection to this machine's daemon; with `start`, one is started for the call when none runs.

    Raises: NoDaemon (only without `start`), WireError, StartError.
    """
    where = paths()
    child: Child | None = None
    try:
        client = await WireClient.over_socket(where.socket)
    except WireError:
        if not start:
            raise NoDaemon("no daemon runs here. Start one with `lodger up`") from None
        where.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        child = await Child.start(["daemon"], os.environ, str(where.state / "daemon.log"))
        try:
            client = await WireClient.over_socket(where.socket)
        except WireError:
            await child.stop()
            raise
    try:
        yield client
    finally:
        await client.close()
        if child is not None:
            await child.stop()
