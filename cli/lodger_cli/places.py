"""Which daemon a command talks to: this machine's own, one started for the call, or one behind a hub."""

import asyncio
import contextlib
import fcntl
import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from lodger_cli.processes import Child, StartError
from lodger_cli.wire import WireClient, WireError
from lodger_daemon.clients.peers import PortOwner, owner_of_port
from lodger_daemon.paths import Paths, find_paths

HUB_RECORD: Final = "running.json"
"""Below the hub's state folder: where the hub that was last started here listens."""


MEANWHILE_S: Final = 5.0
"""A daemon that was started again listens within a second, on a busy machine a few."""
LOOK_EVERY_S: Final = 0.1


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


async def _start_for_the_call(where: Paths) -> tuple[Child | None, WireClient]:
    """A daemon of our own, or the one that somebody else has started meanwhile. Raises: WireError, StartError."""
    try:
        child = await Child.start(["daemon"], os.environ, str(where.state / "daemon.log"))
    except StartError:
        # `lodger up` may just have started its daemon again: then that one holds the place, and answers soon.
        client = await _answering_soon(where)
        if client is None:
            raise
        return None, client
    try:
        return child, await WireClient.over_socket(where.socket)
    except WireError:
        await child.stop()
        raise


async def _answering_soon(where: Paths) -> WireClient | None:
    for _ in range(round(MEANWHILE_S / LOOK_EVERY_S)):
        with contextlib.suppress(WireError):
            return await WireClient.over_socket(where.socket)
        if not _somebody_runs(where):
            return None
        await asyncio.sleep(LOOK_EVERY_S)
    return None


def _somebody_runs(where: Paths) -> bool:
    """Whether a daemon holds the lock of this place."""
    try:
        with where.daemon_lock.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


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
        child, client = await _start_for_the_call(where)
    try:
        yield client
    finally:
        await client.close()
        if child is not None:
            await child.stop()
