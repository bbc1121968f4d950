"""The networks that this machine itself has an address in, as the kernel tells them (rtnetlink(7)).

An address of the open network may still be this machine's, or a neighbour's: a rented server has a public one, and with
IPv6 every printer has.
"""

import contextlib
import socket
import struct
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from typing import Final

from lodger_sandbox.egress.core.allow import IpNetwork

_RTM_GETADDR, _NLM_DUMP = 22, 0x1 | 0x300
_DONE, _ERROR = 3, 2
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_HEADER: Final = struct.Struct("=IHHII")
_ADDRESS: Final = struct.Struct("=BBBBI")
_ATTRIBUTE: Final = struct.Struct("=HH")
_FAMILIES: Final = frozenset({socket.AF_INET, socket.AF_INET6})
_PIECE_BYTES: Final = 64 * 1024
_WITHIN_S: Final = 1.0


def own_networks() -> frozenset[IpNetwork]:
    """Asked anew for each connection, since a laptop moves. Under a millisecond. Raises: OSError."""
    if not hasattr(socket, "AF_NETLINK"):  # macOS, where boxes are a preview
        return frozenset()
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as kernel:
        kernel.settimeout(_WITHIN_S)
        asked = _ADDRESS.pack(0, 0, 0, 0, 0)
        kernel.send(_HEADER.pack(_HEADER.size + len(asked), _RTM_GETADDR, _NLM_DUMP, 1, 0) + asked)
        found: set[IpNetwork] = set()
        while True:
            for kind, body in _pieces(kernel.recv(_PIECE_BYTES), _HEADER.size, 4):
                if kind == _ERROR:
                    raise OSError("the kernel does not tell this machine's addresses")
                if kind == _DONE:
                    return frozenset(found)
                found |= set(_networks(body))


def _networks(message: bytes) -> Iterator[IpNetwork]:
    family, fixed_bits, *_ = _ADDRESS.unpack_from(message)
    if family not in _FAMILIES:
        return
    for kind, packed in _pieces(message[_ADDRESS.size :], _ATTRIBUTE.size, 2):
        if kind not in (_IFA_ADDRESS, _IFA_LOCAL):
            continue
        with contextlib.suppress(ValueError):
            address = ip_address(packed)
            yield ip_network(address)
            # The network is the one of the address that stands there for others: at a direct line that is the peer's.
            if kind == _IFA_ADDRESS and fixed_bits > 0:
                yield ip_network((address, fixed_bits), strict=False)


def _pieces(data: bytes, head_bytes: int, size_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Kind and body of each message or attribute: both begin with their length and their kind."""
    layout = struct.Struct("=IH" if size_bytes == 4 else "=HH")
    at = 0
    while at + head_bytes <= len(data):
        size, kind = layout.unpack_from(data, at)
        if size < head_bytes:
            return
        yield kind, data[at + head_bytes : at + size]
        at += (size + 3) & ~3
