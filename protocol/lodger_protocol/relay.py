"""How Lodger's hub and daemon share one socket between many clients.

Negotiated at registration (`metadata.relay_envelope` from the daemon, `relayEnvelope` from the hub, both true).
Without it the socket carries bare frames, as PROTOCOL.md 1.7 says.

A message of the envelope is a header line (one JSON object), a newline, and the frame of one client as it stands. The
hub reads the header and never the body. A compact JSON frame holds no newline, so bare frames (`ping`, `pong`,
`memory_head`, `devices_revoked`) stay recognisable on the same socket.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

HEADER_LIMIT_BYTES: Final = 1024
"""A header holds a client id and a word; anything longer is refused before it is parsed."""


class RelayEvent(StrEnum):
    FRAME = "frame"
    OPENED = "opened"
    """The hub lets a client in; the daemon makes a connection for it."""
    CLOSED = "closed"


class RelayHeader(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    client: str
    event: RelayEvent = RelayEvent.FRAME
    role: str = "client"
    device: str = ""
    """With `OPENED`: the hub's id of the device the client is on; empty when the hub knows none."""


class MalformedRelayMessage(ValueError):
    """A message on a relay socket that has a header line which is no header."""


@dataclass(frozen=True, slots=True)
class RelayMessage:
    header: RelayHeader
    body: bytes


def is_enveloped(message: bytes) -> bool:
    """Whether this message has a header line; bare frames do not."""
    return message.find(b"\n", 0, HEADER_LIMIT_BYTES + 1) >= 0


def unwrap(message: bytes) -> RelayMessage:
    """Split one message. Raises: MalformedRelayMessage."""
    end = message.find(b"\n", 0, HEADER_LIMIT_BYTES + 1)
    if end < 0:
        raise MalformedRelayMessage("no header line")
    try:
        header = RelayHeader.model_validate_json(message[:end])
    except ValidationError as error:
        raise MalformedRelayMessage(f"bad header: {error.error_count()} faults") from error
    return RelayMessage(header, message[end + 1 :])


def wrap(
    client: str, body: bytes, event: RelayEvent = RelayEvent.FRAME, role: str = "client", device: str = ""
) -> bytes:
    """One message of the envelope."""
    header = RelayHeader(client=client, event=event, role=role, device=device)
    return header.model_dump_json(exclude={"device"} if not device else None).encode() + b"\n" + body


def unwrap_text(message: str) -> tuple[RelayHeader, str]:
    """As `unwrap`, for a message that is already text: the hub passes bodies on without encoding them again."""
    end = message.find("\n", 0, HEADER_LIMIT_BYTES + 1)
    if end < 0:
        raise MalformedRelayMessage("no header line")
    try:
        header = RelayHeader.model_validate_json(message[:end])
    except ValidationError as error:
        raise MalformedRelayMessage(f"bad header: {error.error_count()} faults") from error
    return header, message[end + 1 :]
