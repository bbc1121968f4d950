"""SOCKS5 (RFC 1928), the CONNECT command without a password; names are not resolved by the program but by us."""

import asyncio
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from lodger_sandbox.egress.core.addresses import folded
from lodger_sandbox.egress.core.hosts import BadHost, Destination, Literal, parse_host
from lodger_sandbox.egress.dialling import NotReached
from lodger_sandbox.egress.doors import HELLO_LIMIT_S, Way, both_ways
from lodger_sandbox.egress.gate import NotAllowed

SOCKS_VERSION: Final = 5
_NO_PASSWORD, _NO_METHOD = 0, 0xFF
_CONNECT: Final = 1
_IPV4, _NAME, _IPV6 = 1, 3, 4
_DONE, _NOT_ALLOWED, _UNREACHABLE, _NO_SUCH_COMMAND, _NO_SUCH_ADDRESS = 0, 2, 4, 7, 8


async def serve_socks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way) -> None:
    """After the version byte. Raises: what streams raise when the program goes away."""
    async with asyncio.timeout(HELLO_LIMIT_S):
        methods = await reader.readexactly((await reader.readexactly(1))[0])
        if _NO_PASSWORD not in methods:
            writer.write(bytes((SOCKS_VERSION, _NO_METHOD)))
            return
        writer.write(bytes((SOCKS_VERSION, _NO_PASSWORD)))
        version, command, _, kind = await reader.readexactly(4)
        if version != SOCKS_VERSION or command != _CONNECT:
            writer.write(_reply(_NO_SUCH_COMMAND))
            return
        try:
            destination = await _destination(reader, kind)
        except BadHost:
            writer.write(_reply(_NO_SUCH_ADDRESS))
            return
    try:
        there = await way.to(destination)
    except NotAllowed:
        writer.write(_reply(_NOT_ALLOWED))
        return
    except NotReached:
        writer.write(_reply(_UNREACHABLE))
        return
    writer.write(_reply(_DONE))
    await both_ways((reader, writer), there)


async def _destination(reader: asyncio.StreamReader, kind: int) -> Destination:
    if kind == _IPV4:
        host = Literal(IPv4Address(await reader.readexactly(4)))
        return Destination(host, await _port(reader))
    if kind == _IPV6:
        host = Literal(folded(IPv6Address(await reader.readexactly(16))))
        return Destination(host, await _port(reader))
    if kind != _NAME:
        raise BadHost("a kind of address that SOCKS5 does not have")
    name = await reader.readexactly((await reader.readexactly(1))[0])
    return Destination(parse_host(name.decode("ascii", "replace")), await _port(reader))


async def _port(reader: asyncio.StreamReader) -> int:
    port = int.from_bytes(await reader.readexactly(2))
    if port == 0:
        raise BadHost("port 0 is nowhere")
    return port


def _reply(code: int) -> bytes:
    return bytes((SOCKS_VERSION, code, 0, _IPV4)) + bytes(6)
