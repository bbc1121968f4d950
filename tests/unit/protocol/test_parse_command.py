"""Any bytes give a value; what a client wrote survives; limits hold."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lodger_protocol.commands import Input, RuntimeStart
from lodger_protocol.envelope import Runtime
from lodger_protocol.parsing import SERVED_COMMANDS, Malformed, UnknownCommand, parse_command

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=12), children, max_size=4),
    max_leaves=12,
)
KNOWN_FIELDS = st.sampled_from(
    ["request_id", "runtime", "payload", "query", "body", "agent_id", "conversation_id", "messages", "target", "fields"]
)


@given(st.binary(max_size=300))
def test_any_bytes_give_a_value(data: bytes) -> None:
    parsed = parse_command(data)
    if isinstance(parsed, Malformed):
        assert parsed.reason
    else:
        assert parsed.type == json.loads(data)["type"]


@given(st.sampled_from(sorted(SERVED_COMMANDS)), st.dictionaries(KNOWN_FIELDS | st.text(max_size=9), JSON, max_size=6))
def test_any_object_of_a_known_type_gives_a_value(command: str, fields: dict[str, object]) -> None:
    frame = {**fields, "type": command}
    parsed = parse_command(json.dumps(frame).encode())
    if isinstance(parsed, Malformed):
        assert parsed.reason
    else:
        assert not isinstance(parsed, UnknownCommand)
        assert json.loads(parsed.to_wire()) == frame


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b'"input"',
        b"{",
        b'{"type":1}',
        b"{}",
        b'\xff{"type":"input"}',
        b"[" * 5000,
        b'{"a":' * 5000,
    ],
)
def test_what_is_no_object_with_a_type(data: bytes) -> None:
    parsed = parse_command(data)
    assert isinstance(parsed, Malformed)
    assert parsed.type is None


def test_an_unknown_type_keeps_all_of_its_frame() -> None:
    frame = {"type": "no_such_command", "request_id": "x1", "deep": {"a": [1, None, 2.5]}}
    assert parse_command(json.dumps(frame).encode()) == UnknownCommand("no_such_command", frame)


def test_unknown_fields_survive_at_every_level() -> None:
    frame = {
        "type": "input",
        "runtime": {"agent_id": "a", "conversation_id": "c", "acting_user_id": "u"},
        "payload": {"kind": "create_message", "messages": [{"role": "user", "content": "hi", "x": 1}], "y": [2]},
        "z": {"k": None},
    }
    parsed = parse_command(json.dumps(frame).encode())
    assert isinstance(parsed, Input)
    assert json.loads(parsed.to_wire()) == frame


def test_a_bad_payload_still_tells_its_scope() -> None:
    frame = {
        "type": "input",
        "request_id": "x3",
        "runtime": {"agent_id": "a", "conversation_id": "c"},
        "payload": {"kind": "create_message"},
    }
    parsed = parse_command(json.dumps(frame).encode())
    assert isinstance(parsed, Malformed)
    assert parsed.type == "input"
    assert parsed.runtime == Runtime(agent_id="a", conversation_id="c")
    assert parsed.raw == frame


def test_a_frame_above_the_limit_is_not_parsed() -> None:
    data = b'{"type":"ping","x":"' + b"a" * 100 + b'"}'
    assert parse_command(data, limit_bytes=len(data)).to_wire() == data  # type: ignore[union-attr]  # it is a Ping
    assert parse_command(data, limit_bytes=len(data) - 1) == Malformed(
        f"frame of {len(data)} bytes, more than {len(data) - 1}"
    )


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity"])
def test_numbers_json_does_not_have_are_refused(number: bytes) -> None:
    assert isinstance(parse_command(b'{"type":"ping","x":' + number + b"}"), Malformed)
    assert not isinstance(parse_command(b'{"type":"ping","x":"' + number + b'"}'), Malformed)


def test_an_absent_folder_differs_from_a_null_one() -> None:
    absent = parse_command(b'{"type":"runtime_start","request_id":"r","agent_id":"a"}')
    null = parse_command(b'{"type":"runtime_start","request_id":"r","agent_id":"a","cwd":null}')
    assert isinstance(absent, RuntimeStart)
    assert isinstance(null, RuntimeStart)
    assert "cwd" not in absent.model_fields_set
    assert "cwd" in null.model_fields_set
