"""The allow-list: what a person lets out of a box. An empty list lets nothing out; a list that cannot be read is an
error and never an empty one (ATTACKS.md N1)."""

import re
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Final, TypeAlias

from lodger_sandbox.egress.core.addresses import IpAddress, folded, is_public
from lodger_sandbox.egress.core.hosts import BadHost, Destination, Literal, Name, parse_host, parse_port

WEB_PORTS: Final = frozenset({80, 443})
"""Of an entry that names no port."""
ENTRY_LIMIT: Final = 1000
_FIXED_BITS: Final = re.compile(r"0|[1-9][0-9]{0,2}")
IpNetwork: TypeAlias = IPv4Network | IPv6Network


class BadAllowList(ValueError):
    """The list, or one entry of it, means nothing. Nothing may be let out on its word."""


@dataclass(frozen=True, slots=True)
class AllowedName:
    """A host by its name: exactly that one, or with `subdomains` every name below it and not itself."""

    name: str
    ports: frozenset[int]
    subdomains: bool = False

    def __str__(self) -> str:
        return f"{'*.' if self.subdomains else ''}{self.name}{_ports_text(self.ports)}"


@dataclass(frozen=True, slots=True)
class AllowedNetwork:
    """Addresses. The only way to let private ones in, since a name may point anywhere."""

    network: IpNetwork
    ports: frozenset[int]

    def __str__(self) -> str:
        whole = self.network.num_addresses == 1
        text = str(self.network.network_address) if whole else str(self.network)
        return (f"[{text}]" if self.network.version == 6 else text) + _ports_text(self.ports)


Entry: TypeAlias = AllowedName | AllowedNetwork


@dataclass(frozen=True, slots=True)
class Pass:
    """The name may be asked for; what it resolves to is judged by `judge_address`."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class Unlisted:
    """A person may be asked."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Not even a person is asked."""

    reason: str


HostVerdict: TypeAlias = Pass | Unlisted | Refused


@dataclass(frozen=True, slots=True)
class AllowList:
    entries: tuple[Entry, ...] = ()

    def judge(self, to: Destination) -> HostVerdict:
        """Before anything is resolved."""
        match to.host:
            case Name(text):
                entry = next((entry for entry in self.entries if _names(entry, text, to.port)), None)
                return Unlisted() if entry is None else Pass(entry)
            case Literal(address):
                listed = self._listed(address, to.port)
                if listed is not None:
                    return Pass(listed)
                return Unlisted() if is_public(address) else Refused(_private(address))

    def judge_address(self, address: IpAddress, port: int, own: Callable[[], Set[IpNetwork]]) -> Refused | None:
        """Of the address that is about to be dialled; None when it may be.

        Args:
            own: the networks that this machine has an address in, which may be public ones.
        """
        real = folded(address)
        if self._listed(real, port) is not None:
            return None
        if is_public(real) and not any(one in network for network in own() for one in (real, address)):
            return None
        return Refused(_private(real))

    def _listed(self, address: IpAddress, port: int) -> AllowedNetwork | None:
        real = folded(address)
        for entry in self.entries:
            if isinstance(entry, AllowedNetwork) and real in entry.network and port in entry.ports:
                return entry
        return None


def parse_allow_list(raw: object) -> AllowList:
    """From settings: a list of texts such as `example.org`, `*.example.org:443`, `10.0.0.0/8:5432`, `[fd00::1]:22`.

    Raises: BadAllowList, also for None and for anything that is not a list of texts.
    """
    if not isinstance(raw, Sequence) or isinstance(raw, (str, bytes)):
        raise BadAllowList("the list of allowed hosts must be a list; an empty one, [], lets nothing out")
    if len(raw) > ENTRY_LIMIT:
        raise BadAllowList(f"the list of allowed hosts has more than {ENTRY_LIMIT} entries")
    return AllowList(tuple(dict.fromkeys(parse_entry(entry) for entry in raw)))


def parse_entry(raw: object) -> Entry:
    """Raises: BadAllowList."""
    if not isinstance(raw, str):
        raise BadAllowList(f"an allowed host is a text, not {type(raw).__name__}")
    try:
        return _entry(raw)
    except ValueError as error:
        raise BadAllowList(f"{raw[:120]!r} names no host to allow: {error}") from None


def entry_for(to: Destination) -> Entry:
    """What "always" to this destination adds: exactly it."""
    ports = frozenset({to.port})
    match to.host:
        case Name(text):
            return AllowedName(text, ports)
        case Literal(address):
            return AllowedNetwork(ip_network(address), ports)


def _entry(text: str) -> Entry:
    if text.startswith("[") or text.count(":") > 1:
        inner, bracket, rest = text[1:].partition("]")
        if not text.startswith("[") or not bracket or rest[:1] not in {"", ":"}:
            raise BadHost("an IPv6 address stands in brackets")
        return AllowedNetwork(_in_brackets(inner), _ports(rest[1:], bool(rest)))
    host, colon, port = text.partition(":")
    ports = _ports(port, bool(colon))
    if "/" in host:
        return AllowedNetwork(_network(host), ports)
    if host.startswith("*."):
        below = parse_host(_in_ascii(host[2:]))
        if not isinstance(below, Name) or "." not in below.text:
            raise BadHost("a star stands before a name of two parts at least")
        return AllowedName(below.text, ports, subdomains=True)
    match parse_host(_in_ascii(host)):
        case Name(name):
            return AllowedName(name, ports)
        case Literal(address):
            if not host.isascii():
                raise BadHost("an address is written in ASCII digits")
            return AllowedNetwork(ip_network(address), ports)


def _in_brackets(text: str) -> IpNetwork:
    """One address, of which IPv4 in IPv6 clothing is IPv4 as everywhere; or a network."""
    if "/" not in text:
        host = parse_host(f"[{text}]")
        if not isinstance(host, Literal):
            raise BadHost("an IPv6 address stands in brackets")
        return ip_network(host.address)
    network = _network(text)
    if network.version != 6 or folded(network.network_address) != network.network_address:
        # Addresses are compared after folding, so such an entry would let nothing through.
        raise BadHost("an IPv4 network is written as such, without brackets")
    return network


def _network(text: str) -> IpNetwork:
    _, _, fixed_bits = text.partition("/")
    if "%" in text or not _FIXED_BITS.fullmatch(fixed_bits):
        # A mask can be read in two ways, and a zone names something of this machine.
        raise BadHost("a network is an address and how many of its bits are fixed, as in 10.0.0.0/8 or [fd00::/16]")
    network = ip_network(text)
    if network.prefixlen == 0:
        raise BadHost("that is every address there is")
    return network


def _in_ascii(name: str) -> str:
    """The xn-- form of a name that a person wrote; programs have to send that form themselves."""
    if name.isascii():
        return name
    import idna

    try:
        return idna.encode(name, uts46=True).decode("ascii")
    except idna.IDNAError as error:
        raise BadHost(f"no international name: {error}") from None


def _ports(text: str, given: bool) -> frozenset[int]:
    return frozenset({parse_port(text)}) if given else WEB_PORTS


def _ports_text(ports: Iterable[int]) -> str:
    known = sorted(ports)
    return "" if frozenset(known) == WEB_PORTS else f":{known[0]}"


def _names(entry: Entry, name: str, port: int) -> bool:
    if not isinstance(entry, AllowedName) or port not in entry.ports:
        return False
    return name.endswith(f".{entry.name}") if entry.subdomains else name == entry.name


def _private(address: IpAddress) -> str:
    return (
        f"{address} is an address of this machine, its network or its cloud; such ones are let through only when the"
        " list of allowed hosts names the address itself"
    )
