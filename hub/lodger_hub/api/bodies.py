"""Request bodies read with a limit, and answers in the wire's shapes."""

import asyncio
import json
from typing import Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from lodger_hub.errors import RequestRefused
from lodger_hub.store.contract import Environment, TokenRole

BODY_LIMIT_BYTES: Final = 64 * 1024
"""A registration with its metadata takes about 2 KiB."""
BODY_LIMIT_S: Final = 60.0
"""A picture over a poor connection; nothing else takes a second."""


class RegisterBody(BaseModel):
    """PROTOCOL.md 1.1. Unknown fields are left alone; metadata is kept as it comes."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    device_id: str = Field(alias="deviceId", min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]*$")
    connection_name: str = Field(alias="connectionName", min_length=1, max_length=256)
    listener_instance_id: str | None = Field(default=None, alias="listenerInstanceId", max_length=256)
    metadata: dict[str, object] = Field(default_factory=dict)


def answer(content: object, status: int = 200) -> Response:
    return Response(json.dumps(content, separators=(",", ":")), status, media_type="application/json")


class PairingBody(BaseModel):
    """What the code is for. Only the hub's owner may ask, so the role is never chosen by whoever brings the code."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    role: TokenRole = TokenRole.CLIENT


class PairBody(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    code: str = Field(max_length=64)
    name: str = Field(max_length=1024)


async def read_body(request: Request, limit_bytes: int = BODY_LIMIT_BYTES) -> bytes:
    """The whole body. Raises: RequestRefused when it is too large, too slow, or its sender was revoked meanwhile."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_LIMIT_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit_bytes:
                    raise RequestRefused(413, "too_large", f"the body is larger than {limit_bytes} bytes")
    except TimeoutError:
        raise RequestRefused(408, "too_slow", f"the body did not arrive within {BODY_LIMIT_S:g} s") from None
    except ClientDisconnect:
        raise RequestRefused(401, "unauthenticated", "the caller is gone, or its token is no longer valid") from None
    return bytes(body)


Body = TypeVar("Body", bound=BaseModel)


def parse_body(kind: type[Body], body: bytes, code: str) -> Body:
    """Raises: RequestRefused with 400: a daemon takes anything else for a passing trouble and tries again."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "body"
        raise RequestRefused(400, code, f"{where}: {first['msg']}") from error
    except RecursionError as error:
        raise RequestRefused(400, code, "the body is nested too deeply") from error


def environment_answer(
    environment: Environment, *, connected: bool, last_heartbeat_at_ms: int | None, now_ms: int
) -> dict[str, object]:
    """PROTOCOL.md 1.8, and below `lodger` what a light should be drawn from. Without an open socket there is no
    connection id, whatever was registered. Ages are the hub's: a phone's clock may be wrong."""
    contact = max(environment.last_seen_at_ms, last_heartbeat_at_ms or 0)
    synced = environment.memory_synced_at_ms
    return {
        "lodger": {
            "connected": connected,
            "lastContactAt": contact,
            "lastContactAgeMs": max(0, now_ms - contact),
            "lastMemorySyncAt": synced,
            "lastMemorySyncAgeMs": None if synced is None else max(0, now_ms - synced),
        },
        "id": environment.id,
        "connectionId": environment.connection_id if connected else None,
        "deviceId": environment.device_id,
        "listenerInstanceId": environment.listener_instance_id,
        "connectionName": environment.connection_name,
        "organizationId": "lodger",
        "podId": None,
        "connectedAt": environment.connected_at_ms,
        "lastHeartbeat": last_heartbeat_at_ms,
        "lastSeenAt": contact,
        "firstSeenAt": environment.first_seen_at_ms,
        "metadata": environment.metadata,
    }
