"""Ports of this machine at which Lodger itself, or the person's browser, expects somebody whom it trusts."""

from collections.abc import Iterable
from urllib.parse import urlsplit


def ports_of(urls: Iterable[str]) -> frozenset[int]:
    """The ports that these addresses name, whatever the host: a name for this machine is not known by its look."""
    return frozenset(port for url in urls if (port := _port(url)) is not None)


def _port(url: str) -> int | None:
    try:
        return urlsplit(url).port
    except ValueError:
        return None
