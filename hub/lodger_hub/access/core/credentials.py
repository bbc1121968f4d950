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


class AuthClass(StrEnum):
    """Who may use a route."""

    PUBLIC = "public"
    MACHINE = "machine"
    CLIENT = "client"
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


def find_credential(
    headers: Mapping[str, str], query: Mapping[str, str], *, basic_allowed: bool
) -> Absent | Unusable | Presented:
    """Only the Authorization header can succeed; every other place is seen so that it cannot go uncounted."""
    authorization = headers.get("authorization")
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


def _basic(value: str) -> Unusable | Presented:
    try:
        user, separator, password = base64.b64decode(value, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return Unusable()
    if not separator or user != GIT_USER or not password:
        return Unusable()
    return Presented(digest_of(password))
