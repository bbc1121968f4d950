"""What a test of turns reads: of a request to the model, and of what was shown."""

from lodger_daemon.models.contract import (
    ModelRequest,
    ToolMessage,
    UserMessage,
)
from lodger_daemon.turns.core import events as seen
from lodger_daemon.turns.core.stop_reasons import StopReason
from support.turn_parts import House


def results(request: ModelRequest) -> list[tuple[str, str, bool]]:
    return [(m.tool_call_id, m.text, m.is_error) for m in request.messages if isinstance(m, ToolMessage)]


def said(request: ModelRequest) -> list[list[str]]:
    """What users said, reminders left out."""
    return [
        [str(part["text"]) for part in m.parts if not str(part["text"]).startswith("<reminder")]
        for m in request.messages
        if isinstance(m, UserMessage)
    ]


def said_parts(request: ModelRequest) -> list[str]:
    return [str(p["text"]) for m in request.messages if isinstance(m, UserMessage) for p in m.parts]


def finished(house: House) -> list[tuple[StopReason, str | None]]:
    return [(e.stop_reason, e.error) for e in house.events if isinstance(e, seen.TurnFinished)]


def names(house: House) -> list[str]:
    return [type(event).__name__ for event in house.events if not isinstance(event, seen.MemorySynced)]
