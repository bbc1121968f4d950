"""Whose socket is at the other end of a loopback connection, from the text of the kernel's tables."""

import ipaddress
from dataclasses import dataclass
from typing import Final

_ESTABLISHED: Final = "01"
_LISTENING: Final = "0A"
_LOCAL, _REMOTE, _STATE, _UID = 1, 2, 3, 7


@dataclass(frozen=True, slots=True)
class Endpoint:
    address: str
    port: int


def owner_uid(tables: tuple[str, ...], client: Endpoint, server: Endpoint) -> int | None:
    """The uid that owns the client's end of the established connection; None when the tables do not show it.

    Args:
        tables: The texts of /proc/net/tcp and /proc/net/tcp6.
    """
    wanted_local, wanted_remote = _forms(client), _forms(server)
    owners: set[int] = set()
    for table in tables:
        for line in table.splitlines()[1:]:
            fields = line.split()
            if len(fields) <= _UID or fields[_STATE] != _ESTABLISHED or not fields[_UID].isdigit():
                continue
            if fields[_LOCAL] in wanted_local and fields[_REMOTE] in wanted_remote:
                owners.add(int(fields[_UID]))
    return owners.pop() if len(owners) == 1 else None


def listener_uids(tables: tuple[str, ...], port: int) -> frozenset[int]:
    """Every uid that listens on this port, at whatever address of this machine; empty when nobody does.

    Args:
        tables: The texts of /proc/net/tcp and /proc/net/tcp6.
    """
    ending = f":{port:04X}"
    rows = (line.split() for table in tables for line in table.splitlines()[1:])
    return frozenset(
        int(fields[_UID])
        for fields in rows
        if len(fields) > _UID
        and fields[_STATE] == _LISTENING
        and fields[_LOCAL].endswith(ending)
        and fields[_UID].isdigit()
    )


def _forms(endpoint: Endpoint) -> frozenset[str]:
    """An endpoint as the tables write it: 32-bit words in this machine's byte order; an IPv4 address also mapped."""
    address = ipaddress.ip_address(endpoint.address.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    packed = [address.packed]
    if isinstance(address, ipaddress.IPv4Address):
        packed.append(b"\0" * 10 + b"\xff\xff" + address.packed)
    return frozenset(f"{_words(one)}:{endpoint.port:04X}" for one in packed)


def _words(packed: bytes) -> str:
    # Linux runs Lodger on little-endian machines only; on others no row matches and a token is needed.
    return "".join(packed[start : start + 4][::-1].hex().upper() for start in range(0, len(packed), 4))
