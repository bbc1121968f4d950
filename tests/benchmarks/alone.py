"""A network of our own with nothing but loopback, so that no program's figures depend on what it finds outside."""

import ctypes
import fcntl
import os
import socket
import struct
from typing import Final

CLONE_NEWNET: Final = 0x40000000
SIOCGIFFLAGS: Final = 0x8913
SIOCSIFFLAGS: Final = 0x8914
IFF_UP: Final = 0x1


def cut_off() -> bool:
    """Leave the network for a namespace with loopback only. Needs root; returns False where that is not allowed."""
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() != 0 or libc.unshare(CLONE_NEWNET) != 0:
        return False
    with socket.socket() as any_socket:
        request = struct.pack("16sh22x", b"lo", 0)
        flags: int = struct.unpack("16sh22x", fcntl.ioctl(any_socket, SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", flags | IFF_UP))
    return True
