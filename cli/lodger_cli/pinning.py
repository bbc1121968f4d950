"""The certificate of a hub that made it itself: taken once, by the fingerprint that the hub's machine shows."""

import hashlib
import hmac
import socket
import ssl
import urllib.parse
from typing import Final

from lodger_cli.wire import WireError

FETCH_LIMIT_S: Final = 15.0


def fetch_certificate(url: str, fingerprint: str) -> str:
    """The certificate at that address as PEM, if its SHA-256 is the one that was given. Nothing is told to whoever
    answers before that is known. Raises: WireError."""
    wanted = "".join(fingerprint.lower().replace(":", "").split())
    if len(wanted) != 64 or set(wanted) - set("0123456789abcdef"):
        raise WireError("a fingerprint is the certificate's SHA-256: 64 hexadecimal digits, with or without colons")
    parts = urllib.parse.urlsplit(url)
    # Only the certificate is read from this connection; every later one is checked against it.
    looking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    looking.check_hostname = False
    looking.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((parts.hostname or "", parts.port or 443), FETCH_LIMIT_S) as plain,
            looking.wrap_socket(plain, server_hostname=parts.hostname) as secure,
        ):
            der = secure.getpeercert(binary_form=True)
    except OSError as error:
        raise WireError(f"the hub at {url} does not answer: {error}") from error
    if der is None or not hmac.compare_digest(hashlib.sha256(der).hexdigest(), wanted):
        raise WireError(
            f"the certificate at {url} is another than the one with that fingerprint: compare it with what "
            "`lodger pair --machine` shows on the hub's machine. Nothing was sent"
        )
    return ssl.DER_cert_to_PEM_cert(der)
