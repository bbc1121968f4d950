"""Whoever waits for an answer gets one, in the shape of that answer."""

import pytest

from lodger_protocol.parsing import SERVED_COMMANDS
from lodger_protocol.unserved import FAILED_SHAPES, SERVED_SHAPES, SILENT_COMMANDS, failed_response


def test_no_command_is_both_served_and_unserved() -> None:
    assert not SERVED_COMMANDS & FAILED_SHAPES.keys()
    assert not SERVED_COMMANDS & SILENT_COMMANDS
    assert SERVED_SHAPES.keys() < SERVED_COMMANDS


@pytest.mark.parametrize("command", sorted(FAILED_SHAPES))
def test_every_unserved_command_is_answered(command: str) -> None:
    response = failed_response(command, {"type": command, "request_id": "r-1"}, "not here")
    assert response is not None
    assert (response["type"], response["request_id"], response["success"], response["error"]) == (
        f"{command}_response",
        "r-1",
        False,
        "not here",
    )


@pytest.mark.parametrize("command", sorted(SILENT_COMMANDS))
def test_commands_without_a_response_stay_silent(command: str) -> None:
    assert failed_response(command, {"type": command, "request_id": "r-1"}, "not here") is None


def test_a_payload_is_emptied_and_its_names_are_echoed() -> None:
    request = {"type": "read_file", "request_id": "r", "path": "/a", "encoding": "utf8"}
    assert failed_response("read_file", request, "no") == {
        "type": "read_file_response",
        "request_id": "r",
        "success": False,
        "path": "/a",
        "encoding": "utf8",
        "content": None,
        "error": "no",
    }


def test_odd_shapes() -> None:
    assert failed_response("terminal_spawn", {"terminal_id": "t"}, "no") == {
        "type": "terminal_exited",
        "terminal_id": "t",
        "exitCode": 1,
        "error": "no",
    }
    assert failed_response("execute_command", {"request_id": "r"}, "no") == {
        "type": "execute_command_response",
        "request_id": "r",
        "success": False,
        "output": "no",
    }
    assert failed_response("chatgpt_usage_read", {"request_id": "r", "target": "local"}, "no") == {
        "type": "chatgpt_usage_read_response",
        "request_id": "r",
        "success": False,
        "target": "local",
        "error": {"code": "not_connected", "message": "no"},
    }
    assert failed_response("remove_queue_item", {"request_id": "r", "item_id": "q"}, "no") == {
        "type": "remove_queue_item_response",
        "request_id": "r",
        "success": False,
        "item_id": "q",
    }
    listed = failed_response("list_in_directory", {"path": "/a"}, "no")
    assert listed is not None
    assert "request_id" not in listed
    assert failed_response("read_file", {"path": "/a"}, "no") is None
    assert failed_response("never_heard_of", {"request_id": "r"}, "no") is None
