"""What all frames have in common: tolerant models, the scope of a conversation, the envelope of an event."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from lodger_protocol.limits import IDENTIFIER_LIMIT_CHARS

Identifier = Annotated[str, Field(min_length=1, max_length=IDENTIFIER_LIMIT_CHARS)]


class WireModel(BaseModel):
    """A frame or a part of one. Fields nobody here knows are kept and written out again as they came."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    def to_wire(self) -> bytes:
        """The frame as it came: exactly the fields that were set, known or not."""
        return self.model_dump_json(exclude_unset=True, by_alias=True).encode()


class Runtime(WireModel):
    """The scope of a conversation: PROTOCOL.md 3.2."""

    agent_id: Identifier
    conversation_id: Identifier


class Event(WireModel):
    """A frame with the envelope of PROTOCOL.md 3.1."""

    runtime: Runtime
    event_seq: int
    emitted_at: str
    idempotency_key: str
