"""Which credential a request brings, if any."""

import base64
import binascii
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

GIT_USER: Final = "letta"
"""Fixed by the peer's daemon (CONTROL-PLANE-REST.md section 9)."""

CREDENTIAL_QUERY_NAMES: Final = frozenset(
    {"token", "access_token", "api_key", "apikey", "key", "devicetoken", "device_token", "password", "auth"}
)
CREDENTIAL_HEADERS: Final = frozenset({"x-api-key", "x-auth-token", "proxy-authorization", "cookie", "x-letta-token"})

SUBPROTOCOL: Final = "lodger.v1"
SUBPROTOCOL_TOKEN: Final = "lodger.token."  # noqa: S105 - the prefix of one
"""A page cannot set headers on a WebSocket; it offers its token as a subprotocol beside `SUBPROTOCOL`. Unlike a
query it stands in no log, history or referrer."""


class AuthClass(StrEnum):
    """Who may use a route."""

    PUBLIC = "public"
    MACHINE = "machine"
    CLIENT = "client"
    OWNER = "owner"
    """A client on the hub's own machine: whoever can read the client token's private file there."""
    EITHER = "either"
    GIT = "git"
    """The machine, whose token may also come as a basic password."""


@dataclass(frozen=True, slots=True)
class Absent:
    """No credential of any form: refused, but no guess."""


@dataclass(frozen=True, slots=True)
class Unusable:
    """Something that looks like a credential in a place or form that is never accepted. Counts as a guess."""


@dataclass(frozen=True, slots=True)
class Presented:
    digest: bytes


def digest_of(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def offered_subprotocols(headers: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(part.strip() for part in headers.get("sec-websocket-protocol", "").split(",") if part.strip())


def find_credential(
    headers: Mapping[str, str], query: Mapping[str, str], *, basic_allowed: bool, socket: bool = False
) -> Absent | Unusable | Presented:
    """Only the Authorization header can succeed, and on a `socket` a page's subprotocol; every other place is seen so
    that it cannot go uncounted. Two credentials at once are none."""
    authorization = headers.get("authorization")
    in_subprotocol = [name for name in offered_subprotocols(headers) if name.startswith(SUBPROTOCOL_TOKEN)]
    if in_subprotocol:
        usable = socket and authorization is None and len(in_subprotocol) == 1
        return _subprotocol(in_subprotocol[0], headers) if usable else Unusable()
    if authorization is not None:
        scheme, _, value = authorization.partition(" ")
        match scheme.lower():
            case "bearer" if value.strip():
                return Presented(digest_of(value.strip()))
            case "basic" if basic_allowed:
                return _basic(value.strip())
            case _:
                return Unusable()
    if any(name in headers for name in CREDENTIAL_HEADERS):
        return Unusable()
    if any(name.lower() in CREDENTIAL_QUERY_NAMES for name in query):
        return Unusable()
    return Absent()


def _subprotocol(offered: str, headers: Mapping[str, str]) -> Unusable | Presented:
    """Only for pages, which always name their origin; the gate has checked that it is the hub's own."""
    token = offered.removeprefix(SUBPROTOCOL_TOKEN)
    if not token or "origin" not in headers or SUBPROTOCOL not in offered_subprotocols(headers):
        return Unusable()
    return Presented(digest_of(token))


def _basic(value: str) -> Unusable | Presented:
    try:
        user, separator, password = base64.b64decode(value, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return Unusable()
    if not separator or user != GIT_USER or not password:
        return Unusable()
    return Presented(digest_of(password))
