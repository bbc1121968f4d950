"""The one HTTP call of the uplink (PROTOCOL.md 1.1).

The standard library's client in a thread: it costs no memory while the link is up, which is nearly always.
"""

import asyncio
import hashlib
import http.client
import json
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lodger_daemon.uplink.core.retry import Failure, failure_of_status, parse_retry_after
from lodger_daemon.uplink.errors import AttemptFailed, InsecureHubUrl

ANSWER_LIMIT_BYTES: Final = 64 * 1024
REQUEST_LIMIT_S: Final = 15.0
LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
SHOWN_REASON_CHARACTERS: Final = 200


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


async def register(base_url: str, token: str, identity: Identity, tls: ssl.SSLContext | None, now_wall: float) -> Lease:
    """Register once. Raises: AttemptFailed."""
    try:
        async with asyncio.timeout(2 * REQUEST_LIMIT_S):
            answer = await asyncio.to_thread(_post, base_url, token, identity.body(), tls)
    except ssl.SSLError as error:
        raise AttemptFailed(Failure.TLS, f"the hub's certificate was not accepted: {_short(str(error))}") from error
    except (TimeoutError, OSError) as error:
        reason = _short(str(error) or type(error).__name__)
        raise AttemptFailed(Failure.NETWORK, f"the hub cannot be reached: {reason}") from error
    except (http.client.HTTPException, ValueError) as error:
        raise AttemptFailed(Failure.NOT_A_HUB, f"no hub answers there: {_short(repr(error))}") from error
    return _lease(answer, base_url, now_wall)


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    retry_after: str | None
    body: bytes


def _post(base_url: str, token: str, body: bytes, tls: ssl.SSLContext | None) -> _Answer:
    parts = urlsplit(base_url)
    assert parts.hostname is not None
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        connection = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=REQUEST_LIMIT_S, context=tls)
    else:
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=REQUEST_LIMIT_S)
    headers = {
        "Content-Type": "application/json",
        "Authorization": f"Bearer {token}",
        "X-Letta-Source": "letta-code",
        "User-Agent": "lodger",
    }
    try:
        connection.request("POST", f"{parts.path}/v1/environments/register", body, headers)
        response = connection.getresponse()
        return _Answer(response.status, response.getheader("Retry-After"), _read(response))
    finally:
        connection.close()


def _read(response: http.client.HTTPResponse) -> bytes:
    """Up to the limit, and not for ever: a peer that drips keeps each single read alive."""
    deadline = time.monotonic() + REQUEST_LIMIT_S
    body = bytearray()
    while len(body) <= ANSWER_LIMIT_BYTES:
        chunk = response.read1(8192)
        if not chunk:
            break
        body += chunk
        if time.monotonic() > deadline:
            raise TimeoutError("the answer took too long")
    return bytes(body[: ANSWER_LIMIT_BYTES + 1])


def _lease(answer: _Answer, base_url: str, now_wall: float) -> Lease:
    if not 200 <= answer.status < 300:
        failure = failure_of_status(answer.status)
        retry_after_s = parse_retry_after(answer.retry_after, now_wall)
        raise AttemptFailed(failure, f"the hub answered {answer.status}: {_explain(answer.body)}", retry_after_s)
    if len(answer.body) > ANSWER_LIMIT_BYTES:
        raise AttemptFailed(Failure.NOT_A_HUB, "no hub answers there: the answer is too long")
    try:
        lease = Lease.model_validate_json(answer.body)
    except (ValidationError, RecursionError) as error:
        raise AttemptFailed(Failure.NOT_A_HUB, "no hub answers there: the answer is no registration") from error
    _check_socket_url(lease.socket_url, base_url)
    return lease


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
