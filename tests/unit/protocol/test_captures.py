"""Every recorded frame is understood, and written out again as it came."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lodger_protocol.envelope import WireModel
from lodger_protocol.frames import parse_frame
from lodger_protocol.parsing import Malformed, UnknownCommand, parse_command

CAPTURES = Path(__file__).parent / "captures"

BROKEN_ON_PURPOSE = {"x2", "x3", "x4", "x6c"}
"""Requests of capture 22 that break the protocol to show what follows."""


def frames(direction: str) -> Iterator[Any]:
    for path in sorted(CAPTURES.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            if record.get("dir") == direction and isinstance(record.get("frame"), dict):
                yield record["frame"]


def test_commands_round_trip() -> None:
    seen = 0
    for frame in frames("client->server"):
        parsed = parse_command(json.dumps(frame).encode())
        seen += 1
        match parsed:
            case Malformed():
                assert frame["request_id"] in BROKEN_ON_PURPOSE, parsed
                assert parsed.raw == frame
            case UnknownCommand():
                assert frame["type"] == "no_such_command"
                assert parsed.raw == frame
            case _:
                assert json.loads(parsed.to_wire()) == frame
    assert seen > 70


def test_events_and_responses_round_trip() -> None:
    seen = 0
    for frame in frames("server->client"):
        parsed = parse_frame(json.dumps(frame).encode())
        seen += 1
        assert isinstance(parsed, WireModel), (parsed, frame)
        assert json.loads(parsed.to_wire()) == frame
    assert seen > 700


def test_http_probes_are_json() -> None:
    lines = (CAPTURES / "34-http-and-auth.jsonl").read_text().splitlines()
    assert {json.loads(line)["ev"] for line in lines} == {"http", "ws_upgrade"}


def test_a_frame_of_a_newer_daemon_is_kept_whole() -> None:
    frame = {"type": "something_new", "runtime": {"agent_id": "a", "conversation_id": "c"}, "x": [1]}
    assert parse_frame(json.dumps(frame).encode()) == UnknownCommand("something_new", frame)


@pytest.mark.parametrize("data", [b"", b"[]", b'{"type":"turn_finished"}', b"\xff", b'{"type":[]}'])
def test_a_broken_frame_gives_a_value(data: bytes) -> None:
    assert isinstance(parse_frame(data), Malformed)
