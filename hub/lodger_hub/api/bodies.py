"""Request bodies read with a limit, and answers in the wire's shapes."""

import json
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from lodger_hub.errors import RequestRefused
from lodger_hub.store.contract import Environment

BODY_LIMIT_BYTES: Final = 64 * 1024
"""A registration with its metadata takes about 2 KiB."""


class RegisterBody(BaseModel):
    """PROTOCOL.md 1.1. Unknown fields are left alone; metadata is kept as it comes."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    device_id: str = Field(alias="deviceId", min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]*$")
    connection_name: str = Field(alias="connectionName", min_length=1, max_length=256)
    listener_instance_id: str | None = Field(default=None, alias="listenerInstanceId", max_length=256)
    metadata: dict[str, object] = Field(default_factory=dict)


def answer(content: object, status: int = 200) -> Response:
    return Response(json.dumps(content, separators=(",", ":")), status, media_type="application/json")


async def read_body(request: Request) -> bytes:
    """The whole body. Raises: RequestRefused when it is larger than any of our routes needs."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_LIMIT_BYTES:
            raise RequestRefused(413, "too_large", f"the body is larger than {BODY_LIMIT_BYTES} bytes")
    return bytes(body)


def parse_registration(body: bytes) -> RegisterBody:
    """Raises: RequestRefused with 400: a daemon takes anything else for a passing trouble and tries again."""
    try:
        return RegisterBody.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "body"
        raise RequestRefused(400, "invalid_registration", f"{where}: {first['msg']}") from error
    except RecursionError as error:
        raise RequestRefused(400, "invalid_registration", "the body is nested too deeply") from error


def environment_answer(
    environment: Environment, *, connected: bool, last_heartbeat_at_ms: int | None
) -> dict[str, object]:
    """PROTOCOL.md 1.8. Without an open socket there is no connection id, whatever was registered."""
    return {
        "id": environment.id,
        "connectionId": environment.connection_id if connected else None,
        "deviceId": environment.device_id,
        "listenerInstanceId": environment.listener_instance_id,
        "connectionName": environment.connection_name,
        "organizationId": "lodger",
        "podId": None,
        "connectedAt": environment.connected_at_ms,
        "lastHeartbeat": last_heartbeat_at_ms,
        "lastSeenAt": max(environment.last_seen_at_ms, last_heartbeat_at_ms or 0),
        "firstSeenAt": environment.first_seen_at_ms,
        "metadata": environment.metadata,
    }
