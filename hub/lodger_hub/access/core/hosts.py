"""Which Host and Origin headers a hub answers to, so that no web page of others can use it (ATTACKS.md W2, W9)."""

import ipaddress
from collections.abc import Set
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


def is_own_origin(origin: str | None, host_header: str | None, *, secure: bool) -> bool:
    """No Origin (no browser) passes; a browser's must be the hub's own page under the very same host and port."""
    if origin is None:
        return True
    return origin.lower() == f"{'https' if secure else 'http'}://{(host_header or '').lower()}"
