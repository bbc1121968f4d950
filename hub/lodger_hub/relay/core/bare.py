"""How bare frames are shared between clients, for a machine that does not speak the envelope (PROTOCOL.md 1.7).

Upwards a client's `request_id` gets the client's id in front, so that equal numbering of two clients cannot meet;
downwards an answer is recognised by it. Nothing has to be remembered, and several answers to one request all arrive.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

MARK: Final = "~"

ANSWERS_TO_THE_MACHINE: Final = frozenset({"external_tool_call_response"})
"""Frames of clients whose `request_id` was chosen by the machine."""

Runtime = tuple[str, str]


@dataclass(slots=True)
class Interest:
    """Which conversations a client watches; an empty set means it has not said, and it sees all."""

    runtimes: set[Runtime] = field(default_factory=set)

    def covers(self, runtime: Runtime | None) -> bool:
        return runtime is None or not self.runtimes or runtime in self.runtimes


@dataclass(frozen=True, slots=True)
class ForOne:
    client_id: str
    frame: str
    runtime: Runtime | None
    """The conversation an answer opened to this client."""


@dataclass(frozen=True, slots=True)
class ForWatchers:
    runtime: Runtime | None


def upward(client_id: str, text: str) -> str | None:
    """The client's frame as the machine gets it; nothing when it is no frame."""
    frame = parse(text)
    if frame is None:
        return None
    request_id = frame.get("request_id")
    if not isinstance(request_id, str) or frame.get("type") in ANSWERS_TO_THE_MACHINE:
        return text
    frame["request_id"] = f"{client_id}{MARK}{request_id}"
    return json.dumps(frame, separators=(",", ":"))


def downward(text: str, client_ids: Iterable[str]) -> ForOne | ForWatchers | None:
    """Who gets a machine's frame; nothing when it is no frame or answers a client that has left."""
    frame = parse(text)
    if frame is None:
        return None
    runtime = runtime_of(frame)
    request_id = frame.get("request_id")
    if isinstance(request_id, str) and MARK in request_id:
        client_id, _, own_id = request_id.partition(MARK)
        if client_id in client_ids:
            frame["request_id"] = own_id
            return ForOne(client_id, json.dumps(frame, separators=(",", ":")), runtime)
        kind = str(frame["type"])
        if kind.endswith("_response") or kind == "input_accepted":
            return None
    return ForWatchers(runtime)


def parse(text: str) -> dict[str, object] | None:
    """A frame is a JSON object with a type; everything else is ignored, as the peer does."""
    try:
        frame = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(frame, dict) or not isinstance(frame.get("type"), str):
        return None
    return frame


def runtime_of(frame: dict[str, object]) -> Runtime | None:
    runtime = frame.get("runtime")
    if not isinstance(runtime, dict):
        return None
    agent_id, conversation_id = runtime.get("agent_id"), runtime.get("conversation_id")
    if not isinstance(agent_id, str) or not isinstance(conversation_id, str):
        return None
    return agent_id, conversation_id
