"""Recordings of a server of the same protocol, as lines that can be replayed."""

import json
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

Frame = dict[str, Any]

RECORDINGS = Path(__file__).parents[1] / "integration" / "replay" / "recordings"


class Kind(StrEnum):
    SENT = "client->server"
    RECEIVED = "server->client"
    CLOSED = "closed"
    """The client closed this connection here."""
    RAW = "raw"
    """Bytes sent that are no frame; the recordings lack them, so a replay adds them."""


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that happened on one connection."""

    connection: str
    kind: Kind
    frame: Frame
    raw: str = ""
    pieces: int = 0
    """How many pieces of the slow text have been said when this one has; 0 for anything else."""

    def with_frame(self, frame: Frame) -> "Line":
        return replace(self, frame=frame)


@dataclass(frozen=True, slots=True)
class Recording:
    name: str
    """The number at the start of its file's name."""
    title: str
    lines: tuple[Line, ...]


def load(name: str) -> Recording:
    (path,) = RECORDINGS.glob(f"{name}-*.jsonl")
    return Recording(name, path.stem, tuple(_line(json.loads(text)) for text in path.read_text().splitlines()))


def _line(stored: Frame) -> Line:
    match stored["dir"]:
        case "client->server" | "server->client" as direction:
            return Line(stored["conn"], Kind(direction), stored["frame"])
        case "note":
            # Every note in the recordings kept here tells of a client that closes its connection.
            assert "closed" in stored["frame"]["text"], stored
            return Line(stored["conn"], Kind.CLOSED, {})
        case other:
            raise AssertionError(other)
