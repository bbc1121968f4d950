"""What of a request passes on to a program in a box, and what of its answer to the browser.

A browser keeps cookies by host, whatever the port. So each shared port sees the cookies of all others, and of them it
must learn nothing that lets it in there; and what it answers must not change how the browser deals with the hub, which
lies on the same host.
"""

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

Headers: TypeAlias = Iterable[tuple[bytes, bytes]]

COOKIE_PREFIX: Final = b"lodger_port_"
_HOP_BY_HOP: Final = frozenset(
    {b"connection", b"proxy-connection", b"proxy-authorization", b"keep-alive", b"te", b"trailer", b"upgrade"}
)
"""RFC 9110 section 7.6.1: between two neighbours only. Length and coding of the body stay; h11 checks them."""
_OF_THE_HOST: Final = frozenset({b"strict-transport-security", b"clear-site-data", b"alt-svc", b"public-key-pins"})
"""What a browser takes for the whole host, or more of it than this port."""
_FRIENDLY: Final = frozenset({b"same-origin", b"none"})
_TAB: Final = b"document"
"""Where a person sees the address (Fetch Metadata: Sec-Fetch-Dest); frames have words of their own."""


def cookie_name(port: int) -> bytes:
    """Of the shared port's session; `port` is the one the browser speaks to."""
    return COOKIE_PREFIX + str(port).encode()


def sessions_of(headers: Headers, port: int) -> tuple[bytes, ...]:
    """Every value the request has for this port's session: a page may have set others beside the one we set."""
    wanted = cookie_name(port)
    return tuple(value for name, value in _cookies(headers) if name == wanted)


def to_app(headers: Headers, *, upgrade: bool) -> list[tuple[bytes, bytes]]:
    """Without cookies of ours and without what is between two neighbours; `upgrade` keeps the wish to go on as a
    WebSocket."""
    headers = list(headers)
    kept = [(name, value) for name, value in _end_to_end(headers) if name != b"cookie"]
    cookies = b"; ".join(name + b"=" + value for name, value in _cookies(headers) if not name.startswith(COOKIE_PREFIX))
    if cookies:
        kept.append((b"Cookie", cookies))
    return [*kept, *_connection(headers, upgrade=upgrade)]


def to_browser(headers: Headers, *, upgrade: bool) -> list[tuple[bytes, bytes]]:
    """The answer of a program that may be hostile."""
    headers = list(headers)
    kept = [
        (name, value)
        for name, value in _end_to_end(headers)
        if name not in _OF_THE_HOST and not (name == b"set-cookie" and _sets_ours(value))
    ]
    return [*kept, *_connection(headers, upgrade=upgrade)]


def wants_upgrade(headers: Headers) -> bool:
    """Whether it asks to go on as a WebSocket, the one protocol that is let through."""
    return any(name == b"upgrade" and value.strip().lower() == b"websocket" for name, value in headers)


def is_from_elsewhere(headers: Headers, own_origin: bytes) -> bool:
    """Whether a page of another origin makes this request, also one of the same host and another port. What a person
    opens is nobody's request."""
    said = {name: value.strip().lower() for name, value in headers}
    origin = said.get(b"origin")
    if origin is not None and origin != own_origin.lower():
        return True
    site = said.get(b"sec-fetch-site")
    if site is None or site in _FRIENDLY:
        return False
    # In a frame it would be the other page that decides what the person sees of it, and where they click.
    return said.get(b"sec-fetch-mode") != b"navigate" or said.get(b"sec-fetch-dest", _TAB) != _TAB


def is_for_later(headers: Headers) -> bool:
    """Whether a browser asks for a service worker's program. It would keep that and let it answer in this origin's
    place from then on, also once the port belongs to another program."""
    return any(name == b"service-worker" for name, _ in headers)


def _connection(headers: Headers, *, upgrade: bool) -> list[tuple[bytes, bytes]]:
    if upgrade and wants_upgrade(headers):
        return [(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]
    return [(b"Connection", b"close")]


def _end_to_end(headers: Headers) -> Iterator[tuple[bytes, bytes]]:
    headers = list(headers)
    named = {word.strip().lower() for name, value in headers if name == b"connection" for word in value.split(b",")}
    if any(name == b"transfer-encoding" for name, _ in headers):
        # RFC 9112 section 6.1: a body that was read in chunks is passed on without the length that contradicts them.
        named.add(b"content-length")
    for name, value in headers:
        if name not in _HOP_BY_HOP and name not in named:
            yield name, value


def _cookies(headers: Headers) -> Iterator[tuple[bytes, bytes]]:
    for header, value in headers:
        if header != b"cookie":
            continue
        for part in value.split(b";"):
            name, equals, content = part.strip().partition(b"=")
            if equals:
                yield name.strip(), content.strip()


def _sets_ours(value: bytes) -> bool:
    return value.partition(b"=")[0].strip().startswith(COOKIE_PREFIX)
