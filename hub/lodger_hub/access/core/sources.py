"""The address a caller is counted by, also behind a proxy."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

LOOPBACK: Final = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))
"""Where a proxy on the hub's own machine comes from."""
HEADER_LIMIT_CHARS: Final = 4096
ONE_HOUSEHOLD_BITS: Final = 64
"""One subscriber's share of IPv6: whoever guesses has all of it."""


@dataclass(frozen=True, slots=True)
class Source:
    address: str
    through: str | None = None
    """The proxy that vouches for the address; it may be one that anybody on its machine could play."""


def networks(texts: Sequence[str]) -> tuple[Network, ...]:
    """Raises: ValueError with words."""
    try:
        return tuple(ipaddress.ip_network(text.strip()) for text in texts)
    except ValueError as error:
        raise ValueError(f"a trusted proxy is an address or a network such as 10.0.0.0/24: {error}") from error


def source_of_call(peer: str, forwarded: Sequence[str], trusted: Sequence[Network]) -> Source:
    """Who calls.

    Args:
        peer: the address at the other end of the connection.
        forwarded: all X-Forwarded-For headers, in order. Each proxy adds at the end what it has seen, so only what
            stands behind the last stranger was written by somebody we trust.
        trusted: whose word is taken; none, and nobody's is.
    """
    hop = _address(peer)
    if hop is None or not _is_in(hop, trusted):
        return Source(_counted(peer, hop))
    text = ",".join(forwarded)
    if not text or len(text) > HEADER_LIMIT_CHARS:
        return Source(_counted(peer, hop))
    for entry in reversed(text.split(",")):
        found = _address(entry)
        if found is None:
            # No proxy of ours writes that; what stands before it is anybody's word.
            return Source(_counted(peer, hop))
        if not _is_in(found, trusted):
            return Source(_counted(entry, found), peer)
        hop = found
    return Source(_counted(peer, hop), peer)


def _is_in(address: Address, trusted: Sequence[Network]) -> bool:
    return any(address in network for network in trusted)


def _address(text: str) -> Address | None:
    """With a port or brackets, as some proxies write it."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _counted(text: str, address: Address | None) -> str:
    if address is None:
        return text.strip() or "unknown"
    if address.version == 4 or address.is_loopback:
        return str(address)
    return str(ipaddress.ip_network((address, ONE_HOUSEHOLD_BITS), strict=False))
