"""Has the sockets made by which a box's programs reach us without knowing of a proxy. Blocks; runs in a thread."""

import socket
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path
from typing import Final

import lodger_sandbox.egress
from lodger_daemon.network.made_inside import NoSockets, close_all, made_inside

_PROGRAM: Final = Path(lodger_sandbox.egress.__path__[0]) / "inside_sockets.py"
_RESOLVER_FILE: Final = Path("/etc/resolv.conf")
_RESOLVER_LIMIT_CHARS: Final = 64 * 1024
NAME_SERVERS: Final = 3
"""glibc asks no more."""
SOCKETS: Final = 4


def make_inside_sockets(door: int) -> tuple[socket.socket, ...]:
    """The name server's socket and the listening ones. Raises: NoSockets.

    Args:
        door: the descriptor of any socket of the box.
    """
    _, made = made_inside(_PROGRAM, door, SOCKETS, *name_servers())
    if len(made) != SOCKETS:
        close_all(made)
        raise NoSockets("sockets are missing")
    return made


def name_servers() -> tuple[str, ...]:
    """Whom programs in a box will ask, as far as these are no addresses of every box anyway."""
    try:
        with _RESOLVER_FILE.open(errors="replace") as file:
            text = file.read(_RESOLVER_LIMIT_CHARS)
    except OSError:
        return ()
    named = (words[1] for line in text.splitlines() if (words := line.split())[:1] == ["nameserver"] and words[1:])
    return tuple(dict.fromkeys(address for address in named if _is_elsewhere(address)))[:NAME_SERVERS]


def _is_elsewhere(text: str) -> bool:
    try:
        return not IPv4Address(text).is_loopback
    except AddressValueError:
        return False
