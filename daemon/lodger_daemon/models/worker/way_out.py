"""The way to a server that the person's environment names: proxies and certificates."""

import os
import ssl
from typing import Final
from urllib.parse import unquote, urlsplit

import certifi
import httpcore

from lodger_daemon.models.core.proxies import proxy_url

_PROXY_SCHEMES: Final = ("http", "https")


def trusted_certificates() -> ssl.SSLContext:
    """The person's, where the environment names them; else those of the world, which cost 6 MB and 30 ms."""
    if file := os.environ.get("SSL_CERT_FILE"):
        return ssl.create_default_context(cafile=file)
    if folder := os.environ.get("SSL_CERT_DIR"):
        return ssl.create_default_context(capath=folder)
    return ssl.create_default_context(cafile=certifi.where())


def proxy_for(url: str) -> httpcore.Proxy | None:
    """None where the way is direct. Raises: ValueError, in words for the person, for a proxy that cannot be used."""
    # 3 MB and 20 ms, for those only whose server is elsewhere.
    from urllib.request import getproxies

    proxy = urlsplit(proxy_url(url, getproxies()))
    if not proxy.scheme:
        return None
    if proxy.scheme not in _PROXY_SCHEMES or not proxy.hostname:
        raise ValueError("the proxy that the environment names is none such as http://host:port")
    return httpcore.Proxy(
        httpcore.URL(scheme=proxy.scheme, host=proxy.hostname, port=proxy.port, target="/"),
        (unquote(proxy.username).encode(), unquote(proxy.password or "").encode()) if proxy.username else None,
    )
