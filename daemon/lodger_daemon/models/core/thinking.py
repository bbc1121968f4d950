"""Reasoning that has to be given back: what a provider signed, kept as one opaque text beside the transcript.

The text names its provider, so that a conversation that changes providers drops what the new one cannot read.
"""

import json

from lodger_daemon.models.core.json_fields import as_list, as_object, parse_object
from lodger_tools.json_value import Json, JsonObject


def seal(provider: str, dialect_state: Json) -> str:
    """One line of JSON. Lines may be concatenated by whoever stores them: the last one counts."""
    return json.dumps({"provider": provider, "state": dialect_state}, separators=(",", ":")) + "\n"


def unseal(signature: str | None, provider: str) -> Json:
    """What this provider sealed; None when another did, or nobody."""
    if not signature or not signature.strip():
        return None
    fields = parse_object(signature.strip().rsplit("\n", 1)[-1])
    return fields["state"] if fields and fields.get("provider") == provider and "state" in fields else None


def thinking_blocks(state: Json) -> list[JsonObject]:
    """The blocks of an Anthropic message, in order; empty for any other state."""
    blocks = [as_object(block) for block in as_list(state)]
    return [block for block in blocks if block.get("type") in ("thinking", "redacted_thinking")]
