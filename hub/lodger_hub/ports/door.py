"""Where browsers reach one shared port: an origin of its own, with exactly one request on a connection.

Requests and answers are taken apart and put together again by one library (h11), so that what was judged is what is
sent, and nothing after the first request goes anywhere.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias
from urllib.parse import parse_qs

import h11

from lodger_hub.ports.core.headers import (
    cookie_name,
    is_for_later,
    is_from_elsewhere,
    sessions_of,
    to_app,
    to_browser,
    wants_upgrade,
)
from lodger_hub.ports.stream import PIECE_BYTES, Stream
from lodger_hub.waiting import until_one_ends

ENTRY_PATH: Final = b"/.lodger/enter"
HEAD_LIMIT_BYTES: Final = 64 * 1024
HEAD_LIMIT_S: Final = 20.0
ANSWER_LIMIT_S: Final = 3600.0
"""For the head of an answer. A program may think for long; a browser that gives up closes."""
CONNECTIONS: Final = 64
"""Of browsers that were let in."""
STRANGERS: Final = 256
"""Connections whose first request is not there yet; whoever knocks without an end keeps others out for 20 s at most."""
FLUSH_S: Final = 10.0
_BACKLOG: Final = 64
_log = logging.getLogger(__name__)
Event: TypeAlias = h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]


class Guard(Protocol):
    def exchange(self, word: str) -> str | None: ...

    def who(self, secrets_shown: Sequence[bytes]) -> str | None: ...

    async def stream(self) -> Stream: ...


@dataclass(frozen=True, slots=True)
class Listening:
    """Where the hub itself listens."""

    host: str
    port: int
    tls: ssl.SSLContext | None


class _Refused(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Door:
    """Made by `open_door`; event loop only."""

    def __init__(self, guard: Guard, is_own_host: Callable[[str], bool], *, secure: bool) -> None:
        self.port = 0
        self._guard = guard
        self._is_own_host = is_own_host
        self._secure = secure
        self._server: asyncio.Server | None = None
        self._tasks: dict[asyncio.Task[None], str] = {}
        """Each connection, with the device's token it was let in by."""

    async def listen(self, host: str, tls: ssl.SSLContext | None) -> None:
        """Raises: OSError."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._server = await asyncio.start_server(
            self._serve,
            host,
            0,
            family=family,
            ssl=tls,
            ssl_handshake_timeout=None if tls is None else HEAD_LIMIT_S,
            limit=PIECE_BYTES,
            backlog=_BACKLOG,
        )
        self.port = int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()

    def cut(self, token_id: str) -> None:
        """End what this token was let in for."""
        for task, owner in self._tasks.items():
            if owner == token_id:
                task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if self._count(let_in=False) >= STRANGERS:
            writer.transport.abort()
            return
        self._tasks[task] = ""
        browser = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_LIMIT_BYTES)
        try:
            async with asyncio.timeout(HEAD_LIMIT_S):
                request = await _next_event(browser, reader.read)
            if isinstance(request, h11.Request):
                await self._answer(task, browser, request, reader, writer)
            await writer.drain()
            writer.close()
            # What is left is flushed to whoever takes it, and not for ever to whoever does not.
            asyncio.get_running_loop().call_later(FLUSH_S, writer.transport.abort)
        except asyncio.CancelledError:
            # Not flushed: whoever was cut off takes nothing more.
            writer.transport.abort()
        except (OSError, TimeoutError, h11.ProtocolError):
            writer.transport.abort()
        except Exception:  # noqa: BLE001 - logged just below
            # The one place where whatever a stranger sends ends its connection: left open, nothing would count it.
            writer.transport.abort()
            _log.exception("a connection to a shared port broke the door's expectations")
        finally:
            del self._tasks[task]

    async def _answer(
        self,
        task: asyncio.Task[None],
        browser: h11.Connection,
        request: h11.Request,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        try:
            origin = self._own_origin(request)
            path, _, query = request.target.partition(b"?")
            if not path.startswith(b"/"):
                raise _Refused(400, "A browser asks a server for a path.")
            if path == ENTRY_PATH:
                writer.write(self._let_in(request, query))
                return
            if is_from_elsewhere(request.headers, origin):
                raise _Refused(403, "Another page asked for this, and may not.")
            if is_for_later(request.headers):
                raise _Refused(403, "Service workers would outlive this port and are not let through.")
            token_id = self._guard.who(sessions_of(request.headers, self.port))
            if token_id is None:
                raise _Refused(403, "Open this port from Lodger's page.")
            if self._count(let_in=True) >= CONNECTIONS:
                raise _Refused(503, "Too many connections to this port are open.")
            self._tasks[task] = token_id
            stream = await self._guard.stream()
        except _Refused as error:
            writer.write(_page(error.status, str(error)))
        except OSError:
            writer.write(_page(502, "Nothing answers there. Does the program in the box still run?"))
        else:
            try:
                await _carry(browser, request, stream, reader, writer)
            finally:
                stream.close()

    def _count(self, *, let_in: bool) -> int:
        return sum(bool(token_id) is let_in for token_id in self._tasks.values())

    def _own_origin(self, request: h11.Request) -> bytes:
        """Raises: _Refused."""
        hosts = [value for name, value in request.headers if name == b"host"]
        if len(hosts) != 1 or not self._is_own_host(hosts[0].decode("latin-1")):
            raise _Refused(403, "This port is not reached under that host name.")
        return (b"https://" if self._secure else b"http://") + hosts[0]

    def _let_in(self, request: h11.Request, query: bytes) -> bytes:
        """Raises: _Refused."""
        words = parse_qs(query.decode("latin-1")).get("word", [])
        secret = self._guard.exchange(words[0]) if request.method == b"GET" and len(words) == 1 else None
        if secret is None:
            raise _Refused(403, "That link was used already, or is too old. Open this port from Lodger's page again.")
        secure = b"; Secure" if self._secure else b""
        cookie = cookie_name(self.port) + b"=" + secret.encode() + b"; Path=/; HttpOnly; SameSite=Strict" + secure
        return _head(303, (b"Location", b"/"), (b"Set-Cookie", cookie), (b"Content-Length", b"0"))


async def open_door(place: Listening, guard: Guard, is_own_host: Callable[[str], bool]) -> Door:
    """Raises: OSError."""
    door = Door(guard, is_own_host, secure=place.tls is not None)
    await door.listen(place.host, place.tls)
    return door


async def _carry(
    browser: h11.Connection,
    request: h11.Request,
    stream: Stream,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """Raises: h11.LocalProtocolError."""
    app = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_LIMIT_BYTES)
    upgrade = wants_upgrade(request.headers)
    headers = to_app(request.headers, upgrade=upgrade)
    sent = app.send(h11.Request(method=request.method, target=request.target, headers=headers))
    await stream.write(sent or b"")
    body = asyncio.create_task(_pass_body(browser, app, reader, stream))
    try:
        switched = await _pass_answer(app, browser, stream, writer, upgrade=upgrade)
        if switched:
            await body
            await _both_ways(browser, app, stream, reader, writer)
    except (OSError, h11.RemoteProtocolError):
        # Of the program in the box: what the browser sends wrong ends the passing of its body alone.
        if browser.our_state is h11.SEND_RESPONSE:
            writer.write(_page(502, "Nothing answers there. Does the program in the box still run?"))
    finally:
        body.cancel()
        await asyncio.gather(body, return_exceptions=True)


async def _pass_body(browser: h11.Connection, app: h11.Connection, reader: asyncio.StreamReader, to: Stream) -> None:
    while True:
        event = await _next_event(browser, reader.read)
        match event:
            case h11.Data() | h11.EndOfMessage():
                await to.write(app.send(event) or b"")
                if isinstance(event, h11.EndOfMessage):
                    return
            case _:
                return


async def _pass_answer(
    app: h11.Connection, browser: h11.Connection, stream: Stream, to: asyncio.StreamWriter, *, upgrade: bool
) -> bool:
    """Whether both go on as a WebSocket. Raises: OSError, h11.ProtocolError."""

    async def read(_: int) -> bytes:
        return await stream.read()

    while True:
        async with asyncio.timeout(ANSWER_LIMIT_S):
            event = await _next_event(app, read)
        match event:
            case h11.InformationalResponse(status_code=101):
                headers = to_browser(event.headers, upgrade=upgrade)
                answer = h11.InformationalResponse(status_code=101, headers=headers, reason=event.reason)
                to.write(browser.send(answer) or b"")
                return True
            case h11.Response():
                headers = to_browser(event.headers, upgrade=False)
                answer_head = h11.Response(status_code=event.status_code, headers=headers, reason=event.reason)
                to.write(browser.send(answer_head) or b"")
            case h11.Data() | h11.EndOfMessage():
                to.write(browser.send(event) or b"")
                if isinstance(event, h11.EndOfMessage):
                    return False
            case h11.InformationalResponse():
                pass
            case _:
                raise ConnectionResetError("the program in the box has gone")
        await to.drain()


async def _both_ways(
    browser: h11.Connection,
    app: h11.Connection,
    stream: Stream,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """Raises: OSError."""
    writer.write(app.trailing_data[0])
    await stream.write(browser.trailing_data[0])

    async def outward() -> None:
        while data := await stream.read():
            writer.write(data)
            await writer.drain()

    async def inward() -> None:
        while data := await reader.read(PIECE_BYTES):
            await stream.write(data)
        await stream.write_eof()

    # A WebSocket ends by its own words, so the end of either side is the end.
    await until_one_ends(outward(), inward())


async def _next_event(connection: h11.Connection, read: Callable[[int], Awaitable[bytes]]) -> Event:
    """Raises: h11.ProtocolError, OSError."""
    while True:
        event = connection.next_event()
        if event is not h11.NEED_DATA:
            return event
        connection.receive_data(await read(PIECE_BYTES))


def _page(status: int, text: str) -> bytes:
    body = f"{text}\n".encode()
    length = (b"Content-Length", str(len(body)).encode())
    return _head(status, (b"Content-Type", b"text/plain; charset=utf-8"), length) + body


def _head(status: int, *headers: tuple[bytes, bytes]) -> bytes:
    made = h11.Connection(h11.SERVER)
    made.receive_data(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
    made.next_event()
    own = ((b"Cache-Control", b"no-store"), (b"Referrer-Policy", b"no-referrer"), (b"Connection", b"close"))
    with contextlib.suppress(h11.LocalProtocolError):
        return made.send(h11.Response(status_code=status, headers=[*headers, *own])) or b""
    return b""
