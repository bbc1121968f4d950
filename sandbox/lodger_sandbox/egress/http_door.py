"""An HTTP proxy: CONNECT, and plain HTTP with exactly one request on a connection.

Requests are taken apart and put together again by one library (h11), so that what was judged is what is sent: the host
of the target decides, the Host header is rewritten to it, and nothing after the first request goes anywhere.
"""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import h11

from lodger_sandbox.egress.core.hosts import BadHost, Destination, parse_destination, parse_host, parse_port
from lodger_sandbox.egress.dialling import NotReached
from lodger_sandbox.egress.doors import HELLO_LIMIT_S, PIECE_BYTES, Way, both_ways
from lodger_sandbox.egress.gate import NotAllowed

HEAD_LIMIT_BYTES: Final = 64 * 1024
_HOP_BY_HOP: Final = frozenset(
    {b"connection", b"proxy-connection", b"proxy-authorization", b"keep-alive", b"te", b"trailer", b"upgrade", b"host"}
)
"""RFC 9110 section 7.6.1: between two neighbours only. Length and coding of the body stay, h11 checks them."""

Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Bad(Exception):
    """Not a request for a proxy. The text goes back to the program."""


async def serve_http(first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way) -> None:
    """Args:
    first: what was read already.
    """
    program = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_LIMIT_BYTES)
    program.receive_data(first)
    try:
        async with asyncio.timeout(HELLO_LIMIT_S):
            request = await _next_event(program, reader)
        if not isinstance(request, h11.Request):
            return
        destination = _destination(request)
        there = await way.to(destination)
    except (h11.RemoteProtocolError, BadHost, _Bad) as error:
        writer.write(_refusal(400, "Bad Request", str(error)))
    except NotAllowed as error:
        writer.write(_refusal(403, "Forbidden", f"Lodger lets no connection through to {error}."))
    except NotReached as error:
        writer.write(_refusal(502, "Bad Gateway", f"{error}."))
    else:
        if request.method == b"CONNECT":
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await _tunnel(program, (reader, writer), there)
        else:
            await _one_request(program, request, destination, (reader, writer), there)
    await writer.drain()


def _destination(request: h11.Request) -> Destination:
    target = request.target.decode("ascii", "replace")
    if request.method == b"CONNECT":
        return parse_destination(target)
    try:
        parts = urlsplit(target)
    except ValueError as error:
        raise _Bad(f"no address: {error}") from None
    if parts.scheme != "http" or not parts.netloc:
        raise _Bad("a proxy is asked with http://host/path, or with CONNECT for everything else")
    if "@" in parts.netloc:
        raise _Bad("a name and password in front of a host are not passed on")
    host, colon, port = parts.netloc.rpartition(":")
    if not colon or parts.netloc.endswith("]"):
        return Destination(parse_host(parts.netloc), 80)
    return Destination(parse_host(host), parse_port(port))


async def _tunnel(program: h11.Connection, here: Streams, there: Streams) -> None:
    early, _ = program.trailing_data
    if early:
        there[1].write(early)
    await both_ways(here, there)


async def _one_request(
    program: h11.Connection, request: h11.Request, destination: Destination, here: Streams, there: Streams
) -> None:
    server = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_LIMIT_BYTES)
    parts = urlsplit(request.target)
    path = (parts.path or b"/") + (b"?" + parts.query if parts.query else b"")
    host = str(destination).removesuffix(":80").encode()
    headers = [(b"Host", host), *_passed_on(request.headers), (b"Connection", b"close")]
    there[1].write(server.send(h11.Request(method=request.method, target=path, headers=headers)) or b"")
    try:
        async with asyncio.TaskGroup() as group:
            body = group.create_task(_pass_body(program, server, here[0], there[1]))
            await _pass_answer(server, program, there[0], here[1])
            body.cancel()
    except* (OSError, h11.ProtocolError):
        pass
    finally:
        there[1].close()


async def _pass_body(
    program: h11.Connection, server: h11.Connection, reader: asyncio.StreamReader, to: asyncio.StreamWriter
) -> None:
    while True:
        event = await _next_event(program, reader)
        if isinstance(event, h11.Data):
            to.write(server.send(event) or b"")
        elif isinstance(event, h11.EndOfMessage):
            to.write(server.send(h11.EndOfMessage()) or b"")
            await to.drain()
            return
        else:
            return
        await to.drain()


async def _pass_answer(
    server: h11.Connection, program: h11.Connection, reader: asyncio.StreamReader, to: asyncio.StreamWriter
) -> None:
    while True:
        event = await _next_event(server, reader)
        match event:
            case h11.InformationalResponse():
                to.write(program.send(event) or b"")
            case h11.Response():
                headers = [*_passed_on(event.headers), (b"Connection", b"close")]
                answer = h11.Response(status_code=event.status_code, headers=headers, reason=event.reason)
                to.write(program.send(answer) or b"")
            case h11.Data():
                to.write(program.send(event) or b"")
            case h11.EndOfMessage():
                to.write(program.send(h11.EndOfMessage()) or b"")
                await to.drain()
                return
            case _:
                return
        await to.drain()


def _passed_on(headers: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    headers = list(headers)
    named = {
        word.strip().lower() for name, value in headers if name == b"connection" for word in bytes(value).split(b",")
    }
    if any(name == b"transfer-encoding" for name, _ in headers):
        # RFC 9112 section 6.1: a server that went by the length would take the rest of the chunks for a next request.
        named.add(b"content-length")
    for name, value in headers:
        if name not in _HOP_BY_HOP and name not in named:
            yield bytes(name), bytes(value)


async def _next_event(
    connection: h11.Connection, reader: asyncio.StreamReader
) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
    """Raises: h11.RemoteProtocolError, OSError."""
    while True:
        event = connection.next_event()
        if event is not h11.NEED_DATA:
            return event
        connection.receive_data(await reader.read(PIECE_BYTES))


def _refusal(status: int, reason: str, text: str) -> bytes:
    body = f"{text}\n".encode()
    head = f"HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
    return f"{head}X-Lodger: refused\r\nConnection: close\r\n\r\n".encode() + body
