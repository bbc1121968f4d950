"""Has the sockets made by which a box's programs reach us without knowing of a proxy. Blocks; runs in a thread."""

import os
import socket
import subprocess
import sys
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path
from typing import Final

import lodger_sandbox.egress

_PROGRAM: Final = str(Path(lodger_sandbox.egress.__path__[0]) / "inside_sockets.py")
_LIMIT_S: Final = 10.0
_RESOLVER_FILE: Final = Path("/etc/resolv.conf")
_RESOLVER_LIMIT_CHARS: Final = 64 * 1024
NAME_SERVERS: Final = 3
"""glibc asks no more."""
SOCKETS: Final = 4


class NoSockets(Exception):
    """They were not made: another program in the box has a port, an earlier broker still has them, or the system does
    not let this user."""


def make_inside_sockets(door: int) -> tuple[socket.socket, ...]:
    """The name server's socket and the listening ones. Raises: NoSockets.

    Args:
        door: the descriptor of any socket of the box.
    """
    here, there = socket.socketpair()
    with here, there:
        here.settimeout(_LIMIT_S)
        try:
            ended = subprocess.run(
                [sys.executable, "-I", "-S", _PROGRAM, str(door), str(there.fileno()), *name_servers()],
                pass_fds=(door, there.fileno()),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env={},
                cwd="/",
                timeout=_LIMIT_S,
                check=False,
            )
            if ended.returncode != 0:
                raise NoSockets(ended.stderr.decode("utf-8", "replace").strip()[-500:])
            _, descriptors, _, _ = socket.recv_fds(here, 16, SOCKETS)
        except (OSError, subprocess.SubprocessError) as error:
            raise NoSockets(str(error)) from error
    if len(descriptors) != SOCKETS:
        for descriptor in descriptors:
            os.close(descriptor)
        raise NoSockets("sockets are missing")
    return tuple(socket.socket(fileno=descriptor) for descriptor in descriptors)


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
