"""Whose process is at the other end of a socket, by the kernel's word."""

import os
import socket
import struct
import sys
from enum import Enum, auto
from pathlib import Path
from typing import Final

from lodger_daemon.clients.core.socket_owner import Endpoint, listener_uids, owner_uid

_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))

_LOCAL_PEERCRED: Final = 0x001
"""`LOCAL_PEERCRED` of macOS, which Python does not name."""


def unix_peer_uid(connection: socket.socket) -> int | None:
    """The uid of the process that connected to this Unix socket; None where the system does not tell."""
    platform: str = sys.platform
    if platform == "linux":
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        _, uid, _ = struct.unpack("3i", credentials)
        return int(uid)
    if platform == "darwin":
        # struct xucred: version, uid, then groups.
        credentials = connection.getsockopt(0, _LOCAL_PEERCRED, 76)
        _, uid = struct.unpack_from("II", credentials)
        return int(uid)
    return None


def tcp_peer_uid(client: Endpoint, server: Endpoint) -> int | None:
    """The uid that owns the client's end of a connection on this machine; None where nothing shows it.

    Reads the kernel's tables: call it in a thread.
    """
    return owner_uid(_read_tables(), client, server)


class PortOwner(Enum):
    """Who listens on a port of this machine."""

    OURS = auto()
    """This user or root: whoever is root can do all this anyway."""
    NOBODY = auto()
    STRANGER = auto()
    UNKNOWN = auto()
    """This system does not tell."""


def owner_of_port(port: int) -> PortOwner:
    """By the kernel's word, so that no other user's program is taken for ours. Blocking."""
    platform: str = sys.platform
    tables = _read_tables()
    if platform != "linux" or not tables:
        return PortOwner.UNKNOWN
    uids = listener_uids(tables, port)
    if not uids:
        return PortOwner.NOBODY
    return PortOwner.OURS if uids <= {0, os.geteuid()} else PortOwner.STRANGER


def _read_tables() -> tuple[str, ...]:
    tables: list[str] = []
    for table in _TABLES:
        try:
            tables.append(table.read_text())
        except OSError:
            continue
    return tuple(tables)
