"""The HTTP calls of the uplink: registering (PROTOCOL.md 1.1), and a look at who has this machine's place.

Written over asyncio's streams, so that a cancelled try leaves nothing behind, and read by the standard library's
parser: a whole HTTP client would cost memory for the few calls that are made.
"""

import asyncio
import hashlib
import http.client
import io
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lodger_daemon.uplink.core.retry import Failure, failure_of_status, parse_retry_after
from lodger_daemon.uplink.errors import AttemptFailed, InsecureHubUrl

ANSWER_LIMIT_BYTES: Final = 64 * 1024
REQUEST_LIMIT_S: Final = 15.0
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
SHOWN_REASON_CHARACTERS: Final = 500
"""A hub of ours says what to do, which takes some lines."""


class Lease(BaseModel):
    """What a hub answers. Only a literal true switches an offer on."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    connection_id: str = Field(alias="connectionId", min_length=1, max_length=512)
    socket_url: str = Field(alias="wsUrl", min_length=1, max_length=4096)
    split_offer: object = Field(default=False, alias="supportsSplitStatusChannels")
    paired_offer: object = Field(default=False, alias="supportsPairedListenerGenerations")
    envelope_offer: object = Field(default=False, alias="relayEnvelope")

    @property
    def enveloped(self) -> bool:
        return self.envelope_offer is True

    @property
    def split(self) -> bool:
        return self.split_offer is True and not self.enveloped

    @property
    def paired(self) -> bool:
        return self.split and self.paired_offer is True


@dataclass(frozen=True, slots=True)
class Identity:
    """Who registers."""

    device_id: str
    connection_name: str
    metadata: Mapping[str, object]

    def body(self) -> bytes:
        digest = hashlib.sha256(self.connection_name.encode()).hexdigest()
        metadata = {
            "environmentMessageProtocol": "v2-input",
            "supportsPairedListenerGenerations": True,
            **self.metadata,
            "relay_envelope": True,
        }
        return json.dumps(
            {
                "deviceId": self.device_id,
                "listenerInstanceId": f"server-{digest[:16]}",
                "connectionName": self.connection_name,
                "metadata": metadata,
            }
        ).encode()


def check_hub_url(url: str) -> str:
    """The base URL without a final slash. Raises: InsecureHubUrl."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise InsecureHubUrl(url) from error
    if not parts.hostname or (parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOOPBACK)):
        raise InsecureHubUrl(url)
    return url.rstrip("/")


def make_tls(ca_file: Path | None) -> ssl.SSLContext:
    """Trusts the system's authorities, or only the given one. Blocking: it reads files."""
    return ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))


@dataclass(frozen=True, slots=True)
class Registered:
    lease: Lease
    hub_wall: float | None
    """The hub's own time as its answer bore it, to the second; None where the answer has none."""


async def register(
    base_url: str, token: str, identity: Identity, tls: ssl.SSLContext | None, now_wall: float
) -> Registered:
    """Register once. Raises: AttemptFailed."""
    try:
        async with asyncio.timeout(REQUEST_LIMIT_S):
            answer = await _call("POST", base_url, "/v1/environments/register", token, identity.body(), tls)
    except ssl.SSLError as error:
        raise AttemptFailed(Failure.TLS, f"the hub's certificate was not accepted: {_short(str(error))}") from error
    except (TimeoutError, OSError) as error:
        reason = _short(str(error) or type(error).__name__)
        raise AttemptFailed(Failure.NETWORK, f"the hub cannot be reached: {reason}") from error
    except (http.client.HTTPException, ValueError) as error:
        raise AttemptFailed(Failure.NOT_A_HUB, f"no hub answers there: {_short(repr(error))}") from error
    return Registered(_lease(answer, base_url, now_wall), _instant(answer.date))


async def is_machine_connected(base_url: str, token: str, device_id: str, tls: ssl.SSLContext | None) -> bool | None:
    """Whether some process is connected to the hub as this machine; None when the hub does not tell."""
    try:
        async with asyncio.timeout(REQUEST_LIMIT_S):
            answer = await _call("GET", base_url, f"/v1/environments/{quote(device_id, safe='')}", token, b"", tls)
        shown = json.loads(answer.body) if answer.status == 200 else None
    except (OSError, TimeoutError, http.client.HTTPException, ValueError, RecursionError):
        return None
    if not isinstance(shown, dict) or "connectionId" not in shown:
        return None
    return shown["connectionId"] is not None


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    retry_after: str | None
    date: str | None
    body: bytes


async def _call(method: str, base_url: str, path: str, token: str, body: bytes, tls: ssl.SSLContext | None) -> _Answer:
    parts = urlsplit(base_url)
    assert parts.hostname is not None
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    reader, writer = await asyncio.open_connection(
        parts.hostname, port, ssl=(tls or True) if secure else None, limit=ANSWER_LIMIT_BYTES
    )
    head = (
        f"{method} {parts.path}{path} HTTP/1.1\r\n"
        f"Host: {parts.netloc.rpartition('@')[2]}\r\n"
        "Connection: close\r\n"
        "User-Agent: lodger\r\n"
        "X-Letta-Source: letta-code\r\n"
        "Content-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n"
        f"Authorization: Bearer {token}\r\n\r\n"
    )
    try:
        writer.write(head.encode("ascii") + body)
        await writer.drain()
        return await _read(reader)
    finally:
        writer.transport.abort()


async def _read(reader: asyncio.StreamReader) -> _Answer:
    """The answer, as soon as it is whole; a server may keep the connection open although asked not to."""
    raw = bytearray()
    while len(raw) <= ANSWER_LIMIT_BYTES:
        chunk = await reader.read(16 * 1024)
        raw += chunk
        answer = _parse(bytes(raw), ended=not chunk)
        if answer is not None:
            return answer
    raise http.client.HTTPException("the answer is too long")


class _Bytes:
    """What the parser takes for a socket."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._raw)


def _parse(raw: bytes, *, ended: bool) -> _Answer | None:
    """The answer, or nothing while more must come. Raises: HTTPException."""
    if b"\r\n\r\n" not in raw and not ended:
        return None
    response = http.client.HTTPResponse(_Bytes(raw), method="POST")  # type: ignore[arg-type] # only makefile is used
    response.begin()
    bounded = response.chunked or response.length is not None
    if not bounded and not ended:
        return None
    try:
        retry_after, date = response.getheader("Retry-After"), response.getheader("Date")
        return _Answer(response.status, retry_after, date, response.read())
    except http.client.IncompleteRead:
        if ended:
            raise
        return None


def _lease(answer: _Answer, base_url: str, now_wall: float) -> Lease:
    if not 200 <= answer.status < 300:
        failure = failure_of_status(answer.status)
        retry_after_s = parse_retry_after(answer.retry_after, now_wall)
        raise AttemptFailed(failure, f"the hub answered {answer.status}: {_explain(answer.body)}", retry_after_s)
    try:
        lease = Lease.model_validate_json(answer.body)
    except (ValidationError, RecursionError) as error:
        raise AttemptFailed(Failure.NOT_A_HUB, "no hub answers there: the answer is no registration") from error
    _check_socket_url(lease.socket_url, base_url)
    return lease


def _instant(date: str | None) -> float | None:
    """An HTTP date in wall seconds; None for anything else."""
    try:
        instant = parsedate_to_datetime(date or "")
        return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def _check_socket_url(socket_url: str, base_url: str) -> None:
    """The token goes to this address too, so it must be as well protected as the first."""
    try:
        parts = urlsplit(socket_url)
        _ = parts.port
    except ValueError as error:
        raise AttemptFailed(Failure.NOT_A_HUB, "the hub gave an address that is none") from error
    plain_allowed = base_url.startswith("http://") and parts.hostname in LOOPBACK
    if not parts.hostname or not (parts.scheme == "wss" or (parts.scheme == "ws" and plain_allowed)):
        raise AttemptFailed(Failure.NOT_A_HUB, "the hub gave an address that would send the token in the clear")


def _explain(body: bytes) -> str:
    """The message a failure carries, as PROTOCOL.md 1.1 prefers it."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        content = None
    if isinstance(content, dict):
        for name in ("message", "error"):
            if isinstance(content.get(name), str):
                return _short(content[name])
    return _short(body[: 4 * SHOWN_REASON_CHARACTERS].decode("utf-8", "replace")) or "no explanation"


def _short(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:SHOWN_REASON_CHARACTERS]
