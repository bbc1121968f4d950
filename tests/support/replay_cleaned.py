"""Recordings with the frames of their server cleaned, and with the bytes they lack."""

from dataclasses import replace

from support.replay_model import SLOW_PIECES
from support.replay_normal import Cleaner, is_text, text_of
from support.replay_recording import Frame, Kind, Line, load

RECORDED_WORKSPACE = "/home/user/project"


def clean(name: str) -> list[Line]:
    cleaners: dict[str, Cleaner] = {}
    pieces: dict[str, int] = {}
    lines: list[Line] = []
    for line in load(name).lines:
        if line.kind is Kind.RECEIVED:
            cleaner = cleaners.setdefault(line.connection, Cleaner(RECORDED_WORKSPACE))
            frame = cleaner.take(line.frame)
            lines.append(replace(line, frame=frame, pieces=_pieces_said(frame, pieces)))
            continue
        if line.kind is Kind.SENT and line.frame["type"] == "no_such_command":
            lines += [Line(line.connection, Kind.RAW, {}, raw) for raw in ("not JSON", "[1, 2]", "{", '"text"')]
        lines.append(line)
    return lines


def _pieces_said(frame: Frame, pieces: dict[str, int]) -> int:
    """Every subscriber is told the same pieces: the recorded server's name of a piece tells which one it is."""
    if not is_text(frame) or text_of(frame) not in SLOW_PIECES:
        return 0
    return pieces.setdefault(frame["delta"]["id"], len(pieces) + 1)
