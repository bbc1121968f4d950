"""From bytes of a daemon to a frame: what a client of ours reads."""

from typing import Annotated, Final, TypeAlias

import pydantic_core
from pydantic import Field, TypeAdapter, ValidationError

from lodger_protocol.events import ServerEvent
from lodger_protocol.limits import FRAME_LIMIT_BYTES
from lodger_protocol.parsing import Malformed, UnknownCommand
from lodger_protocol.responses import ServedResponse

ServerFrame: TypeAlias = Annotated[ServerEvent | ServedResponse, Field(discriminator="type")]

UnknownFrame: TypeAlias = UnknownCommand
"""A frame of a daemon that knows more than this client."""

_ADAPTER: Final[TypeAdapter[ServerEvent | ServedResponse]] = TypeAdapter(ServerFrame)


def parse_frame(
    data: bytes, limit_bytes: int = FRAME_LIMIT_BYTES
) -> ServerEvent | ServedResponse | UnknownFrame | Malformed:
    """Read one frame of a daemon. Any bytes give a value; nothing is raised."""
    if len(data) > limit_bytes:
        return Malformed(f"frame of {len(data)} bytes, more than {limit_bytes}")
    try:
        return _ADAPTER.validate_json(data)
    except ValidationError as error:
        return _explain(data, error)


def _explain(data: bytes, error: ValidationError) -> UnknownFrame | Malformed:
    try:
        raw = pydantic_core.from_json(data)
    except ValueError:
        return Malformed("not JSON")
    if not isinstance(raw, dict) or not isinstance(raw.get("type"), str):
        return Malformed("not a JSON object with a type")
    fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
    if fault["type"] == "union_tag_invalid" and len(fault["loc"]) == 0:
        return UnknownFrame(raw["type"], raw)
    return Malformed(str(fault["msg"]), raw["type"], raw)
