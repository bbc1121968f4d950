"""Which frames may wait for a sleeping machine, and how a machine's acknowledgement is read.

This is the hub's REST door: here, and only here, it looks into a frame of a client.
"""

import json
from dataclasses import dataclass
from typing import Final

from lodger_hub.relay.core.bare import parse, runtime_of

ID_CHARACTERS: Final = 256
MESSAGES: Final = 32
ACKNOWLEDGED: Final = "input_accepted"


@dataclass(frozen=True, slots=True)
class Letter:
    client_message_id: str
    frame: str
    """With the request id under which the machine will acknowledge it."""


@dataclass(frozen=True, slots=True)
class NoLetter:
    reason: str


def read_letter(text: str, request_id: str) -> Letter | NoLetter:
    """Only a message can wait: an answer to a question or a command means the moment it was given in."""
    frame = parse(text)
    if frame is None or frame["type"] != "input":
        return NoLetter("the body is not an `input` frame")
    if runtime_of(frame) is None:
        return NoLetter("the frame names no conversation: `runtime` with `agent_id` and `conversation_id`")
    payload = frame.get("payload")
    if not isinstance(payload, dict) or payload.get("kind") != "create_message":
        return NoLetter("only messages (`create_message`) can wait for a machine")
    messages = payload.get("messages")
    if not isinstance(messages, list) or not 1 <= len(messages) <= MESSAGES:
        return NoLetter(f"`messages` holds from 1 to {MESSAGES} messages")
    ids = [message.get("client_message_id") if isinstance(message, dict) else None for message in messages]
    if not all(isinstance(one, str) and 1 <= len(one) <= ID_CHARACTERS and one.isprintable() for one in ids):
        return NoLetter("each message needs a printable `client_message_id`: it is carried out once per id")
    frame["request_id"] = request_id
    return Letter(str(ids[0]), _written(frame))


def _written(frame: dict[str, object]) -> str:
    """No longer than what was posted, but for the request id: escaped, text in most scripts would be too large for the
    machine's connection only after it had been accepted."""
    text = json.dumps(frame, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        # Half of a character pair stands in it, which only its escape can carry.
        return json.dumps(frame, separators=(",", ":"))
    return text


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    request_id: str
    accepted: bool
    reason: str | None


def read_acknowledgement(text: str) -> Acknowledgement | None:
    """Nothing for every other frame."""
    if ACKNOWLEDGED not in text:
        return None
    frame = parse(text)
    if frame is None or frame["type"] != ACKNOWLEDGED:
        return None
    request_id, error = frame.get("request_id"), frame.get("error")
    if not isinstance(request_id, str):
        return None
    # Halves of character pairs, which JSON can spell, are no text that could be kept or sent on.
    reason = error.encode("utf-8", "replace").decode() if isinstance(error, str) else None
    return Acknowledgement(request_id, frame.get("accepted") is True, reason)
