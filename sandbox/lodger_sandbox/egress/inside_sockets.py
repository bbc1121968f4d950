"""Makes the sockets that programs reach which know of no proxy: DNS and the usual ports, in a box's own network.

A program of its own, run by path as `python -I -S inside_sockets.py DOOR_FD ANSWER_FD ADDRESS…`, since only a process
with one thread may change its user namespace, and since each box waits for it. DOOR_FD is any socket of the box; the
made ones are sent over ANSWER_FD in the order UDP 53, TCP 80, 443, 22. ADDRESSes are the name servers that the box's
programs will ask: they become addresses of the box itself.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct
import sys

TCP_PORTS = (80, 443, 22)
BACKLOG = 128
OWN_ADDRESS = "127.64.255.254"
"""Many programs ask for IPv4 addresses only where there is one beside 127.0.0.1 (AI_ADDRCONFIG)."""
_SIOCGSKNS = 0x894C
"""ioctl_ns: the network namespace of a socket, for who may administer it."""
_NS_GET_USERNS = 0xB701
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_RTM_NEWADDR, _NLM_NEW = 20, 0x1 | 0x4 | 0x400
_SCOPE_HOST, _IFA_ADDRESS, _IFA_LOCAL = 254, 1, 2
_LO = 1
_NO_NETWORK = 2


def main(argv: list[str]) -> int:
    door, answer = int(argv[1]), int(argv[2])
    try:
        enter(door)
        for address in (*argv[3:], OWN_ADDRESS):
            make_local(address)
        made = [_udp(), *map(_tcp, TCP_PORTS)]
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        return _NO_NETWORK
    with socket.socket(fileno=answer) as there:
        socket.send_fds(there, [b"!"], [one.fileno() for one in made])
    return 0


def enter(door: int) -> None:
    """Raises: OSError, also when the socket is of this process's own network."""
    network = fcntl.ioctl(door, _SIOCGSKNS)
    own = os.stat("/proc/self/ns/net")  # noqa: PTH116 - pathlib costs more than all the rest
    if os.fstat(network).st_ino == own.st_ino:
        raise OSError("that is no socket of a box")
    owner = fcntl.ioctl(network, _NS_GET_USERNS)
    libc = ctypes.CDLL(None, use_errno=True)
    for descriptor, kind in ((owner, _CLONE_NEWUSER), (network, _CLONE_NEWNET)):
        if libc.setns(descriptor, kind) != 0:
            raise OSError(ctypes.get_errno(), "the box's network cannot be entered")


def make_local(address: str) -> None:
    """Whoever sends to this IPv4 address in here reaches a socket in here. Raises: OSError."""
    packed = socket.inet_aton(address)
    head = struct.pack("=BBBBI", socket.AF_INET, 32, 0, _SCOPE_HOST, _LO)
    body = head + struct.pack("=HH4sHH4s", 8, _IFA_LOCAL, packed, 8, _IFA_ADDRESS, packed)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as kernel:
        kernel.send(struct.pack("=IHHII", 16 + len(body), _RTM_NEWADDR, _NLM_NEW, 1, 0) + body)
        (code,) = struct.unpack_from("=i", kernel.recv(4096), 16)
    if code not in (0, -errno.EEXIST):
        raise OSError(-code, f"{address} could not be made an address of the box")


def _udp() -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    # An answer must come from the very address that was asked.
    made.setsockopt(socket.IPPROTO_IP, 8, 1)  # IP_PKTINFO, which the module has from 3.12 on only
    made.bind(("0.0.0.0", 53))  # noqa: S104 - of the box
    return made


def _tcp(port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("0.0.0.0", port))  # noqa: S104 - of the box
    made.listen(BACKLOG)
    return made


if __name__ == "__main__":
    sys.exit(main(sys.argv))
