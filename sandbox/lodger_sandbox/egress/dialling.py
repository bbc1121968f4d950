"""From a destination to a connection: resolve once, judge each address, dial exactly the address that was judged."""

import asyncio
import socket
from collections.abc import Callable
from ipaddress import ip_address
from typing import Final

from lodger_sandbox.egress.core.addresses import IpAddress
from lodger_sandbox.egress.core.hosts import Destination, Literal, Name
from lodger_sandbox.egress.gate import NotAllowed

RESOLVE_LIMIT_S: Final = 10.0
CONNECT_LIMIT_S: Final = 15.0
ADDRESSES_TRIED: Final = 4


class NotReached(Exception):
    """Allowed, and not there: no such name, or nobody answers."""


async def dial(
    to: Destination, judge: Callable[[IpAddress], None]
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Raises: NotAllowed when no address of it may be dialled; NotReached."""
    refused: NotAllowed | None = None
    failure: Exception | None = None
    for address in (await _addresses(to))[:ADDRESSES_TRIED]:
        try:
            judge(address)
        except NotAllowed as error:
            refused = error
            continue
        try:
            async with asyncio.timeout(CONNECT_LIMIT_S):
                # Only the address: no second look-up, which could answer otherwise.
                return await asyncio.open_connection(str(address), to.port)
        except (OSError, TimeoutError) as error:
            failure = error
    if failure is None and refused is not None:
        raise refused
    raise NotReached(f"{to} cannot be reached: {failure or 'it has no address'}")


async def _addresses(to: Destination) -> list[IpAddress]:
    match to.host:
        case Literal(address):
            return [address]
        case Name(text):
            loop = asyncio.get_running_loop()
            try:
                async with asyncio.timeout(RESOLVE_LIMIT_S):
                    found = await loop.getaddrinfo(text, to.port, type=socket.SOCK_STREAM)
            except TimeoutError:
                raise NotReached(f"{to} cannot be resolved: no answer in time") from None
            except (OSError, UnicodeError) as error:
                raise NotReached(f"{to} cannot be resolved: {error}") from None
            return [ip_address(str(entry[4][0]).partition("%")[0]) for entry in found]
