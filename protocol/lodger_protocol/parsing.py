"""From bytes of a client to a command, without ever raising."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, TypeAlias, get_args

import pydantic_core
from pydantic import Field, JsonValue, TypeAdapter, ValidationError

from lodger_protocol.commands import Command
from lodger_protocol.envelope import Runtime
from lodger_protocol.limits import COMMAND_LIMIT_BYTES

_ADAPTER: Final[TypeAdapter[Command]] = TypeAdapter(Annotated[Command, Field(discriminator="type")])

SERVED_COMMANDS: Final = frozenset(get_args(model.model_fields["type"].annotation)[0] for model in get_args(Command))
"""The `type` of every command that has a model."""


@dataclass(frozen=True, slots=True)
class UnknownCommand:
    """A JSON object with a `type` that has no model here; `raw` is all of it."""

    type: str
    raw: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Malformed:
    """No JSON object, or one that its model refuses.

    `type` and `raw` are there when it was an object with a text `type`; `runtime` when that part of it was valid.
    """

    reason: str
    type: str | None = None
    raw: Mapping[str, JsonValue] = field(default_factory=dict)
    runtime: Runtime | None = None


ParsedCommand: TypeAlias = Command | UnknownCommand | Malformed


def parse_command(data: bytes, limit_bytes: int = COMMAND_LIMIT_BYTES) -> ParsedCommand:
    """Read one frame of a client. Any bytes give a value; nothing is raised."""
    if len(data) > limit_bytes:
        return Malformed(f"frame of {len(data)} bytes, more than {limit_bytes}")
    if _may_hold_no_number(data):
        return Malformed("NaN and Infinity are no JSON")
    try:
        return _ADAPTER.validate_json(data)
    except ValidationError as error:
        return _explain(data, error)


def _may_hold_no_number(data: bytes) -> bool:
    # The parser takes these words, which JSON does not have, and a client would choke on them later. Inside a string
    # they are fine, so only a frame that holds them pays for the second look.
    if b"NaN" not in data and b"Infinity" not in data:
        return False
    try:
        pydantic_core.from_json(data, allow_inf_nan=False)
    except ValueError:
        return True
    return False


def _explain(data: bytes, error: ValidationError) -> UnknownCommand | Malformed:
    try:
        raw = pydantic_core.from_json(data)
    except ValueError:
        return Malformed("not JSON")
    if not isinstance(raw, dict):
        return Malformed("not a JSON object")
    command_type = raw.get("type")
    if not isinstance(command_type, str):
        return Malformed("no type")
    if command_type not in SERVED_COMMANDS:
        return UnknownCommand(command_type, raw)
    return Malformed(_first_fault(error), command_type, raw, _runtime_of(raw))


def _first_fault(error: ValidationError) -> str:
    fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
    # The first step of the path is the tag of the discriminated union, which a client never wrote.
    path = ".".join(str(step) for step in fault["loc"][1:])
    return f"{path}: {fault['msg']}" if path else str(fault["msg"])


def _runtime_of(raw: Mapping[str, JsonValue]) -> Runtime | None:
    try:
        return Runtime.model_validate(raw.get("runtime"))
    except ValidationError:
        return None
