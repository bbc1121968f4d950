"""The name server of a box: it asks nobody, and gives every name an address of the box's own loopback.

A program that connects to such an address is met by us, who know the name again; so no name leaves the box by being
asked about (ATTACKS.md N4), and the list of allowed hosts decides about the name itself.
"""

import struct
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import Final

from lodger_sandbox.egress.core.hosts import BadHost, Name, parse_host

_FIRST: Final = int(IPv4Address("127.64.0.1"))
NAMES_LIMIT: Final = 16_000
"""Of one box; a program that asks for more gets no address for them."""
_HEADER: Final = struct.Struct("!HHHHHH")
_A, _INTERNET = 1, 1
_ANSWER, _RECURSION_DESIRED, _RECURSION_AVAILABLE = 0x8000, 0x0100, 0x0080
_OPCODE, _NO_ERROR, _SERVER_FAILURE, _NO_SUCH_NAME = 0x7800, 0, 2, 3
_TTL_S: Final = 60


@dataclass(slots=True)
class NameBook:
    """Names and their addresses; an address is never given to a second name."""

    _addresses: dict[str, IPv4Address] = field(default_factory=dict)
    _names: dict[IPv4Address, Name] = field(default_factory=dict)

    def address_of(self, name: Name) -> IPv4Address | None:
        """None when there are too many."""
        known = self._addresses.get(name.text)
        if known is None and len(self._names) < NAMES_LIMIT:
            known = self._addresses[name.text] = IPv4Address(_FIRST + len(self._names))
            self._names[known] = name
        return known

    def name_of(self, address: IPv4Address) -> Name | None:
        return self._names.get(address)


def answer(query: bytes, names: NameBook) -> bytes | None:
    """The reply to one datagram; None for what is no question that a resolver asks."""
    if len(query) < _HEADER.size:
        return None
    number, flags, questions, *_ = _HEADER.unpack_from(query)
    if flags & (_ANSWER | _OPCODE) or questions != 1:
        return None
    end = _question_end(query)
    if end is None:
        return None
    kind, network = struct.unpack_from("!HH", query, end - 4)
    code, record = _NO_ERROR, b""
    try:
        name = parse_host(_name_text(query))
    except BadHost:
        code = _NO_SUCH_NAME
    else:
        if not isinstance(name, Name):
            code = _NO_SUCH_NAME
        elif (kind, network) == (_A, _INTERNET):
            address = names.address_of(name)
            code = _SERVER_FAILURE if address is None else _NO_ERROR
            record = b"" if address is None else _record(address)
    told = _ANSWER | _RECURSION_AVAILABLE | (flags & _RECURSION_DESIRED) | code
    return _HEADER.pack(number, told, 1, 1 if record else 0, 0, 0) + query[_HEADER.size : end] + record


def _question_end(query: bytes) -> int | None:
    """Where the one question ends; None when it is cut short or points elsewhere, which a question has no need to."""
    at = _HEADER.size
    while at < len(query) and 0 < query[at] < 64:
        at += 1 + query[at]
    return at + 5 if at + 5 <= len(query) and query[at] == 0 else None


def _name_text(query: bytes) -> str:
    """Raises: BadHost for a label that is no label of a host, such as one with a dot in it."""
    labels: list[str] = []
    at = _HEADER.size
    while size := query[at]:
        label = query[at + 1 : at + 1 + size].decode("ascii", "replace")
        if "." in label:
            raise BadHost("a dot within a label")
        labels.append(label)
        at += 1 + size
    return ".".join(labels)


def _record(address: IPv4Address) -> bytes:
    # 0xC00C: the name stands where the question has it.
    return struct.pack("!HHHIH", 0xC00C, _A, _INTERNET, _TTL_S, 4) + address.packed
