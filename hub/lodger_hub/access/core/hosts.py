"""Which Host and Origin headers a hub answers to, so that no web page of others can use it (ATTACKS.md W2, W9)."""

import ipaddress
from collections.abc import Set
from dataclasses import dataclass
from urllib.parse import urlsplit


def host_name(header: str) -> str | None:
    """The name in a Host header without its port, in lower case; nothing when it is malformed."""
    try:
        parts = urlsplit(f"//{header}")
        _ = parts.port
    except ValueError:
        return None
    if parts.path or parts.query or parts.fragment or parts.username is not None:
        return None
    return parts.hostname


def is_own_host(header: str | None, names: Set[str]) -> bool:
    """An address as host cannot be the work of a name server, so only names are held against the list."""
    name = host_name(header) if header else None
    if name is None:
        return False
    if name == "localhost" or name in names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_own_origin(origin: str | None, own: str) -> bool:
    """No Origin (no browser) passes; a browser's must be the hub's own page under the very same host and port."""
    return origin is None or origin.lower() == own


@dataclass(frozen=True, slots=True)
class PublicUrl:
    """The address under which a proxy that holds a certificate (Caddy, Tailscale) shows this hub."""

    origin: str
    netloc: str
    name: str


def public_url(text: str) -> PublicUrl:
    """Raises: ValueError with words."""
    parts = urlsplit(text.strip().lower())
    if parts.scheme != "https" or parts.hostname is None or parts.username is not None:
        raise ValueError(f"a public address begins with https:// and a host name: {text!r} does not")
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError(f"a public address has no path: {text!r} has")
    netloc = parts.netloc.removesuffix(":443")
    return PublicUrl(f"https://{netloc}", netloc, parts.hostname)


def own_origin(host_header: str, *, secure: bool, public: PublicUrl | None) -> str:
    """The origin of the page that was loaded from here under this Host header. Browsers leave a standard port out of
    both. Behind the public address the hub itself is spoken to without TLS."""
    host = host_header.lower()
    if public is not None and host in (public.netloc, f"{public.netloc}:443"):
        return public.origin
    return f"{'https' if secure else 'http'}://{host}"
