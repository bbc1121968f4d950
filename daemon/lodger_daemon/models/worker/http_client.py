"""HTTP/1.1 to one server: httpcore with its connections kept warm, over sockets of asyncio."""

import asyncio
import base64
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote, urlsplit

import httpcore

from lodger_daemon.models.core.providers import is_loopback
from lodger_daemon.models.worker.network import AsyncioNetwork
from lodger_daemon.models.worker.way_out import proxy_for, trusted_certificates

_CONNECT_LIMIT_S: Final = 10.0
_WRITE_LIMIT_S: Final = 60.0
_KEEP_WARM_S: Final = 120.0
_UNFOLDED_BYTES: Final = 64 * 1024
"""Of a compressed answer, at once: a few bytes of one may stand for gigabytes."""
_FOLDED_LIMIT_BYTES: Final = 64 * 1024 * 1024
"""Of a compressed answer as it comes, much of which may stand for nothing that its reader would count."""
_UNQUOTED: Final = "/%:@!$&'()*+,;=~?[]"
"""What stays as it is in a path or query, besides letters, figures and `-._`."""


class HttpFault(Exception):
    """No answer, or none to its end. The text says how, in words for the person."""


class HttpTimeout(HttpFault):
    """Silence for longer than allowed, or no head of an answer in all the time for it."""


class HttpClient:
    """Asks one server, over connections that stay warm between its requests. Event loop only.

    Args:
        base_url: of the server; every address asked begins with it.
        read_limit_s: longest silence while it answers.
        head_limit_s: for all until the head of an answer is there. Silence is no measure of that: a server may say
            without end that it will answer. None is what all the other limits come to.

    Raises:
        HttpFault: when the proxy or the certificates that the environment names cannot be used.
    """

    def __init__(self, base_url: str, read_limit_s: float, head_limit_s: float | None = None) -> None:
        limits = {"connect": _CONNECT_LIMIT_S, "write": _WRITE_LIMIT_S, "read": read_limit_s}
        self._extensions = {"timeout": limits}
        # Through a proxy all of them come twice.
        self._head_limit_s = 2 * sum(limits.values()) if head_limit_s is None else head_limit_s
        try:
            proxy = None if is_loopback(base_url) else proxy_for(base_url)
            certificates = trusted_certificates() if base_url.startswith("https:") else None
        except (ValueError, OSError) as fault:
            raise HttpFault(str(fault)) from None
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=certificates,
            proxy=proxy,
            max_connections=None,
            keepalive_expiry=_KEEP_WARM_S,
            network_backend=AsyncioNetwork(),
        )

    async def ask(self, method: str, url: str, headers: dict[str, str], body: bytes | None = None) -> "Answer":
        """Return once the head of the answer is there, whose body is still to be read; close it in any case.

        Raises: HttpFault.
        """
        place = _place(url)
        fields = [(b"Host", place.host), (b"Accept", b"*/*")]
        fields += [(name.encode(), value.encode()) for name, value in (headers | place.login).items()]
        if body is not None:
            fields.append((b"Content-Length", b"%d" % len(body)))
        with _as_our_faults():
            try:
                return Answer(await self._send(method, place.url, fields, body))
            except httpcore.RemoteProtocolError:
                # A kept connection that the server closed at this very moment: nothing was answered, so ask once more.
                return Answer(await self._send(method, place.url, fields, body))

    async def aclose(self) -> None:
        await self._pool.aclose()

    async def _send(
        self, method: str, url: httpcore.URL, fields: list[tuple[bytes, bytes]], body: bytes | None
    ) -> httpcore.Response:
        request = httpcore.Request(method, url, headers=fields, content=body, extensions=self._extensions)
        try:
            async with asyncio.timeout(self._head_limit_s):
                return await self._pool.handle_async_request(request)
        except TimeoutError as fault:
            raise httpcore.ReadTimeout("no answer in all that time") from fault


class Answer:
    """What a server says to one request: its head, and its body as far as that has come.

    Attributes:
        headers: names in lower case.
    """

    def __init__(self, response: httpcore.Response) -> None:
        self._response = response
        self.status = response.status
        self.headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The body as it comes. Raises: HttpFault."""
        with _as_our_faults():
            pieces = self._response.aiter_stream()
            if self.headers.get("content-encoding", "").strip().lower() in ("gzip", "x-gzip", "deflate"):
                pieces = _unfolded(pieces)
            async for piece in pieces:
                yield piece

    async def aclose(self) -> None:
        """Return once the connection is kept for the next request, or closed where the body was not read to its end."""
        await self._response.aclose()


@dataclass(frozen=True, slots=True)
class _Place:
    url: httpcore.URL
    host: bytes
    login: dict[str, str]
    """What a name in the address says; wins over any other."""


@lru_cache(maxsize=64)
def _place(url: str) -> _Place:
    parts = urlsplit(url)
    host = _ascii(parts.hostname or "")
    target = quote(parts.path or "/", safe=_UNQUOTED) + (
        f"?{quote(parts.query, safe=_UNQUOTED)}" if parts.query else ""
    )
    login = {}
    if parts.username is not None:
        words = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        login = {"authorization": f"Basic {base64.b64encode(words.encode()).decode()}"}
    shown = f"[{host}]" if ":" in host else host
    return _Place(
        httpcore.URL(scheme=parts.scheme, host=host, port=parts.port, target=target),
        (f"{shown}:{parts.port}" if parts.port else shown).encode(),
        login,
    )


def _ascii(host: str) -> str:
    if host.isascii():
        return host
    import idna

    return idna.encode(host, uts46=True).decode()


async def _unfolded(pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    unfolding = zlib.decompressobj(zlib.MAX_WBITS | 32)
    folded_bytes = 0
    async for piece in pieces:
        folded_bytes += len(piece)
        if folded_bytes > _FOLDED_LIMIT_BYTES:
            raise HttpFault("A compressed answer does not end.")
        # What comes after its end is nothing, and zlib would gather it.
        rest = b"" if unfolding.eof else piece
        while rest:
            yield unfolding.decompress(rest, _UNFOLDED_BYTES)
            rest = unfolding.unconsumed_tail
    yield unfolding.flush()


@contextmanager
def _as_our_faults() -> Iterator[None]:
    """What httpcore and zlib raise becomes HttpFault."""
    try:
        yield
    except httpcore.TimeoutException as fault:
        raise HttpTimeout(str(fault)) from None
    except httpcore.LocalProtocolError:
        # Its own words repeat what was to be sent, the key too.
        raise HttpFault("the request holds what HTTP cannot carry; look at the provider's key") from None
    except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.ProxyError, zlib.error) as fault:
        raise HttpFault(str(fault) or type(fault).__name__) from None
