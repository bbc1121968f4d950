"""One spelling for each host, so that what was allowed, what is shown and what is dialled are the same bytes.

A name that two programs could read differently (`127.1`, `0x7f.1`, a trailing NUL, a zone, user information) is refused
here and reaches no resolver (SANDBOX-NOTES.md section 4).
"""

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Final, TypeAlias

from lodger_sandbox.egress.core.addresses import IpAddress, folded

_LABEL: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NAME_LIMIT: Final = 253
"""Bytes of a name in DNS (RFC 1035)."""
_IPV4: Final = re.compile(r"(?:0|[1-9][0-9]{0,2})(?:\.(?:0|[1-9][0-9]{0,2})){3}")
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}")
PORT_LIMIT: Final = 65_535


class BadHost(ValueError):
    """Not a host, or not one that everybody reads alike. The text says why."""


@dataclass(frozen=True, slots=True)
class Name:
    """A DNS name: lower case, ASCII, no trailing dot; its last label starts with a letter."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Literal:
    """An address written as such; IPv4 in IPv6 clothing is IPv4."""

    address: IpAddress

    def __str__(self) -> str:
        return f"[{self.address}]" if isinstance(self.address, IPv6Address) else str(self.address)


Host: TypeAlias = Name | Literal


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a connection wants to go."""

    host: Host
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def parse_host(text: str) -> Host:
    """A host as a program names it; IPv6 with or without brackets.

    Raises: BadHost.
    """
    if not text.isascii():
        raise BadHost("a host is written in ASCII here; write the xn-- form of an international name")
    if text.startswith("[") and text.endswith("]"):
        return _ipv6(text[1:-1])
    if ":" in text:
        return _ipv6(text)
    if _IPV4.fullmatch(text):
        try:
            return Literal(IPv4Address(text))
        except ValueError as error:
            raise BadHost(f"{text} is no address: {error}") from None
    return _name(text)


def parse_destination(text: str) -> Destination:
    """`host:port`, as the target of CONNECT is written; both parts are required.

    Raises: BadHost.
    """
    host, colon, port = text.rpartition(":")
    if not colon or (":" in host and not host.startswith("[")):
        raise BadHost("a destination is host:port, with an IPv6 address in brackets")
    return Destination(parse_host(host), parse_port(port))


def parse_port(text: str) -> int:
    """Raises: BadHost."""
    if not _PORT.fullmatch(text) or int(text) > PORT_LIMIT:
        raise BadHost(f"a port is a number from 1 to {PORT_LIMIT}")
    return int(text)


def _ipv6(text: str) -> Literal:
    if "%" in text:
        raise BadHost("an address with a zone names something of this machine")
    try:
        return Literal(folded(IPv6Address(text)))
    except ValueError as error:
        raise BadHost(f"no IPv6 address: {error}") from None


def _name(text: str) -> Name:
    name = text.lower().removesuffix(".")
    labels = name.split(".")
    if not name or len(name) > _NAME_LIMIT or not all(_LABEL.fullmatch(label) for label in labels):
        raise BadHost("no host name: labels of letters, digits and hyphens, with dots between")
    if not labels[-1][0].isalpha():
        raise BadHost("the last part of a host name starts with a letter; write an IPv4 address in four decimal parts")
    return Name(name)
