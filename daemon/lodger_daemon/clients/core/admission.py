"""Who may come in over TCP: the map of PROTOCOL.md 2.2 with ARCHITECTURE.md 10.2, decided from plain values."""

import ipaddress
from dataclasses import dataclass
from enum import Enum, auto
from http import HTTPStatus
from typing import Final, TypeAlias
from urllib.parse import urlsplit

WEBSOCKET_PATHS: Final = ("/", "/ws")
PLAIN_PATHS: Final = ("/healthz", "/readyz")
INFO_PATH: Final = "/app-server-info"

HOST_LIMIT_CHARS: Final = 255
TOKEN_LIMIT_CHARS: Final = 4096
"""Longer values are no token of ours and are not hashed."""


class Credential(Enum):
    """What became of the token a request brought."""

    ABSENT = auto()
    GOOD = auto()
    WRONG = auto()
    NOT_BEARER = auto()


@dataclass(frozen=True, slots=True)
class Visit:
    """One request, reduced to what decides about it."""

    target: str
    """Path and query."""
    is_upgrade: bool
    has_origin: bool
    hosts: tuple[str, ...]
    """All Host headers."""
    credential: Credential
    same_user: bool
    """The connection belongs to the daemon's own user, by the kernel's word."""


@dataclass(frozen=True, slots=True)
class House:
    """What of the listener's set-up decides."""

    bound_host: str
    knows_tokens: bool
    token_required: bool
    """Everybody needs one, also the daemon's own user."""
    locked: bool
    """Whoever comes from there was wrong too often."""


@dataclass(frozen=True, slots=True)
class LetIn:
    """Go on with the upgrade."""


@dataclass(frozen=True, slots=True)
class ShowHealth:
    pass


@dataclass(frozen=True, slots=True)
class ShowInfo:
    pass


@dataclass(frozen=True, slots=True)
class TurnAway:
    status: HTTPStatus
    phrase: str
    json_error: bool = False
    """The body is a JSON object with the phrase as `error`."""


Admission: TypeAlias = LetIn | ShowHealth | ShowInfo | TurnAway

_FORBIDDEN: Final = TurnAway(HTTPStatus.FORBIDDEN, "Forbidden")
_NOT_FOUND: Final = TurnAway(HTTPStatus.NOT_FOUND, "Not Found")

_REASONS: Final = {
    Credential.ABSENT: "missing websocket bearer token",
    Credential.WRONG: "invalid websocket bearer token",
    Credential.NOT_BEARER: "invalid authorization header",
}


def admit(visit: Visit, house: House) -> Admission:
    """Decide about one request."""
    if not _names_this_listener(visit.hosts, house.bound_host):
        return _FORBIDDEN
    parts = urlsplit(visit.target)
    if visit.is_upgrade:
        return _admit_upgrade(visit, house, parts.path, parts.query)
    if visit.has_origin:
        return _FORBIDDEN
    if parts.path in PLAIN_PATHS:
        return ShowHealth()
    if parts.path == INFO_PATH:
        return _judge(visit, house, json_error=True) or ShowInfo()
    return _NOT_FOUND


def _admit_upgrade(visit: Visit, house: House, path: str, query: str) -> Admission:
    if path not in WEBSOCKET_PATHS:
        return _NOT_FOUND
    if any(pair.partition("=")[0] == "channel" for pair in query.split("&")):
        return TurnAway(HTTPStatus.UPGRADE_REQUIRED, "Upgrade Required")
    if visit.has_origin and not (
        house.knows_tokens and (house.token_required or visit.credential is not Credential.ABSENT)
    ):
        return _FORBIDDEN
    return _judge(visit, house, json_error=False) or LetIn()


def _judge(visit: Visit, house: House, *, json_error: bool) -> TurnAway | None:
    """None for a visitor who may come in."""
    trusted = visit.same_user and not visit.has_origin and not house.token_required
    if visit.credential is Credential.ABSENT and trusted:
        return None
    if visit.credential is Credential.GOOD:
        # Also from a source that is locked: 256 bits are not guessed, and what runs beside a guesser must go on.
        return None
    if house.locked and visit.credential is not Credential.ABSENT:
        return TurnAway(HTTPStatus.TOO_MANY_REQUESTS, "too many wrong tokens, try again later", json_error)
    return TurnAway(HTTPStatus.UNAUTHORIZED, _REASONS[visit.credential], json_error)


def _names_this_listener(hosts: tuple[str, ...], bound_host: str) -> bool:
    """Whether the Host header names loopback or the address we listen on: a page that rebinds its name to 127.0.0.1
    sends its own (attack W9)."""
    if len(hosts) != 1 or len(hosts[0]) > HOST_LIMIT_CHARS:
        return False
    try:
        name = urlsplit(f"//{hosts[0]}").hostname
    except ValueError:
        return False
    if name is None:
        return False
    if name == "localhost" or name == bound_host.lower():
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    # On every interface any address of this machine is right, and no name can be rebound to a literal.
    return address.is_loopback or not is_loopback(bound_host)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a listener on that host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
