"""Which proxy stands between this machine and a server, as the person's environment says."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult, urlsplit

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def proxy_url(url: str, proxies: Mapping[str, str]) -> str:
    """The address of the proxy; empty where the way is direct.

    Args:
        proxies: by scheme, or `all`; under `no` those to reach without: names with all below them, names that begin
            with a dot for those below only, addresses, each with a port or without, or `*` for everything.

    Raises:
        ValueError: for a port that is no number.
    """
    asked = urlsplit(url)
    found = proxies.get(asked.scheme) or proxies.get("all", "")
    if not found or any(_covers(name.strip().lower(), asked) for name in proxies.get("no", "").split(",")):
        return ""
    return found if "://" in found else f"http://{found}"


def _covers(name: str, asked: SplitResult) -> bool:
    scheme, _, place = name.rpartition("://")
    if not place or scheme not in ("", "all", asked.scheme):
        return False
    host, port = _host_and_port(place)
    if port and port != str(asked.port or _DEFAULT_PORTS.get(asked.scheme)):
        return False
    if not host:
        # Such as `:` or `[]`. It names nobody, where to take it for everybody would pass a proxy by.
        return False
    host, asked_host = host.lstrip("*"), asked.hostname or ""
    below = host if host.startswith(".") else f".{host}"
    return not host or asked_host == host or asked_host.endswith(below)


def _host_and_port(place: str) -> tuple[str, str]:
    if place.count(":") > 1 and not place.startswith("["):
        # IPv6 without its brackets has no port.
        return place, ""
    host, _, port = place.rpartition(":") if ":" in place.rpartition("]")[2] else (place, "", "")
    return host.strip("[]"), port
