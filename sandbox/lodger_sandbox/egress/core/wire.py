"""What daemon and broker say to each other: one JSON object a line; a listening socket rides beside its `serve`."""

import json
from dataclasses import dataclass
from typing import Final, TypeAlias, assert_never

from lodger_sandbox.egress.core.allow import AllowList, BadAllowList, parse_allow_list

LINE_LIMIT_BYTES: Final = 256 * 1024
VERSION: Final = 1


class BadLine(ValueError):
    """Not a line of this wire."""


@dataclass(frozen=True, slots=True)
class Hello:
    token: str


@dataclass(frozen=True, slots=True)
class SetAllowList:
    allow: AllowList


@dataclass(frozen=True, slots=True)
class Serve:
    """Comes with one descriptor: the socket that listens in the box."""

    box: str


@dataclass(frozen=True, slots=True)
class ServePlain:
    """Comes with four descriptors: the box's name server and the ports that programs reach without a proxy."""

    box: str


@dataclass(frozen=True, slots=True)
class ForgetBox:
    box: str


@dataclass(frozen=True, slots=True)
class Decide:
    ask: int
    allowed: bool
    grant_s: float


@dataclass(frozen=True, slots=True)
class Ping:
    """Answered with the same number, after everything that was decided before."""

    number: int


@dataclass(frozen=True, slots=True)
class End:
    """The broker ends; connections through it break."""


Order: TypeAlias = Hello | SetAllowList | Serve | ServePlain | ForgetBox | Decide | Ping | End


def read_order(line: bytes) -> Order:
    """Raises: BadLine."""
    try:
        value = json.loads(line)
        match value["do"]:
            case "hello":
                return Hello(_text(value["token"]))
            case "allow":
                return SetAllowList(parse_allow_list(value["list"]))
            case "serve":
                return Serve(_text(value["box"]))
            case "serve_plain":
                return ServePlain(_text(value["box"]))
            case "forget":
                return ForgetBox(_text(value["box"]))
            case "decide":
                return Decide(int(value["ask"]), value["allowed"] is True, float(value["grant_s"]))
            case "ping":
                return Ping(int(value["number"]))
            case "end":
                return End()
            case other:
                raise BadLine(f"an unknown order: {other!r}")
    except (ValueError, KeyError, TypeError, RecursionError, BadAllowList) as error:
        raise BadLine(f"not an order: {error!r}") from None


def order_line(order: Order) -> bytes:
    match order:
        case Hello(token):
            value: dict[str, object] = {"do": "hello", "token": token}
        case SetAllowList(allow):
            value = {"do": "allow", "list": [str(entry) for entry in allow.entries]}
        case Serve(box):
            value = {"do": "serve", "box": box}
        case ServePlain(box):
            value = {"do": "serve_plain", "box": box}
        case ForgetBox(box):
            value = {"do": "forget", "box": box}
        case Decide(ask, allowed, grant_s):
            value = {"do": "decide", "ask": ask, "allowed": allowed, "grant_s": grant_s}
        case Ping(number):
            value = {"do": "ping", "number": number}
        case End():
            value = {"do": "end"}
        case _:
            assert_never(order)
    return json.dumps(value).encode() + b"\n"


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise BadLine("a text is missing")
    return value
