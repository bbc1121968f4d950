"""Which addresses are out in the world, and which are this machine's, its network's or its cloud's."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final, TypeAlias

IpAddress: TypeAlias = IPv4Address | IPv6Address

_NAT64: Final = IPv6Network("64:ff9b::/96")
"""RFC 6052: the last four bytes are the IPv4 address that is really meant."""
_COMPATIBLE: Final = IPv6Network("::/96")
"""RFC 4291, obsolete: as above."""
_SPECIAL: Final = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",
            "192.168.0.0/16",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/3",
            # Looks public and is a cloud's own service for its machines; other clouds' are link-local or private.
            "168.63.129.16/32",
        ),
    )
)
"""The IANA registry of special addresses, multicast and what is reserved. Our own list: what the standard library calls
global changes with its release, and 192.0.0.192, one cloud's metadata service, was global in 3.11."""
_GLOBAL_IPV6: Final = IPv6Network("2000::/3")
_SPECIAL_IPV6: Final = tuple(map(IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")))


def folded(address: IpAddress) -> IpAddress:
    """The IPv4 address that an IPv6 one stands for, whichever of the known ways it says so; else the address itself."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in _NAT64 or (address in _COMPATIBLE and int(address) > 0xFFFF):
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


def is_public(address: IpAddress) -> bool:
    """Whether this is an address of the open network: not loopback, private, link-local, shared, multicast, reserved
    or a cloud's metadata service."""
    real = folded(address)
    if isinstance(real, IPv4Address):
        return not any(real in network for network in _SPECIAL)
    return real in _GLOBAL_IPV6 and not any(real in network for network in _SPECIAL_IPV6)
