"""`lodger chat` in a real pseudo-terminal, with a daemon of its own and a scripted model."""

import json
import os
import signal
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lodger_daemon.paths import find_paths
from support.endpoint_process import EndpointProcess, model_endpoint
from support.terminal import Terminal

COLOURFUL = {"TERM": "xterm-256color"}


def script(*steps: dict[str, Any]) -> str:
    return f"<<{json.dumps({'steps': list(steps)})}>>"


@pytest.fixture
def endpoint() -> Iterator[EndpointProcess]:
    with model_endpoint() as process:
        yield process


def chatting(home: Path, endpoint: EndpointProcess, *arguments: str, **environment: str) -> Terminal:
    model = {"OPENAI_BASE_URL": f"{endpoint.url}/v1", "OPENAI_API_KEY": "a-key-for-tests"}
    return Terminal(home, "chat", *arguments, **model, **environment)


def ready(chat: Terminal) -> str:
    """What came until the person may type."""
    return chat.expect("the agent stays.") + chat.expect(">")


@pytest.mark.parametrize("when", ["at the prompt", "at a question"])
def test_ctrl_c_ends_the_chat_at_once(tmp_path: Path, when: str) -> None:
    with Terminal(tmp_path, "chat", "--mode", "strict") as chat:
        opening = ready(chat)
        assert "Talking to Lodger, with the model practice/practice." in opening
        if when == "at a question":
            chat.send("write notes.md with hello\r")
            chat.expect("Allow it?")
        chat.send("\x03")
        assert chat.end() == 130


def test_a_person_says_no_and_leaves(tmp_path: Path) -> None:
    with Terminal(tmp_path, "chat", "--mode", "strict") as chat:
        ready(chat)
        chat.send("write notes.md with hello\r")
        chat.expect("Allow it?")
        chat.send("what?\r")
        chat.expect("Allow it?")
        chat.send("n\r")
        chat.expect("said no")
        chat.send("\x04")
        assert chat.end() == 0
        assert chat.seen.endswith("\n"), "the shell's prompt starts on a line of its own"
    assert not (tmp_path / "lodger" / "workspace" / "notes.md").exists()


def test_a_person_types_on_while_the_agent_works_and_stops_it(tmp_path: Path, endpoint: EndpointProcess) -> None:
    with chatting(tmp_path, endpoint, **COLOURFUL) as chat:
        ready(chat)
        chat.send(script({"text": "one two three", "hang_after": 2}) + "\r")
        endpoint.wait_until(lambda seen: len(seen) == 1, 30)
        chat.send("and then this\r")
        chat.expect("it waits its turn")
        chat.send("/queue\r")
        chat.expect("and then this")
        chat.send("/stop\r")
        chat.expect("Interrupted")
        endpoint.wait_until(lambda seen: seen[0]["state"] == "gone", 30)
        chat.send("/queue\r")
        chat.expect("(held back) and then this")
        chat.send("/queue resume\r")
        chat.expect("ok")
        chat.send("/exit\r")
        assert chat.end() == 0


def test_commands_answer_and_change_what_they_say(tmp_path: Path, endpoint: EndpointProcess) -> None:
    with chatting(tmp_path, endpoint, **COLOURFUL) as chat:
        ready(chat)
        for command, answer in (
            ("/help", "/compact"),
            ("/queue", "Nothing waits"),
            ("/mode wild", "There is no mode wild"),
            ("/mode", "The mode is standard"),
            ("/nonsense", "There is no /nonsense here"),
            ("/model", "openai/scripted"),
            ("/model nobody/knows", "cannot be used here"),
            ("/stop", "Nothing runs"),
        ):
            chat.send(command + "\r")
            chat.expect(answer)
        chat.send("//not a command\r")
        chat.expect("ok")
        assert endpoint.requests()[-1]["raw"].count("/not a command") == 1
        chat.send("/new\r")
        chat.expect("Talking to")
        chat.send("/exit\r")
        assert chat.end() == 0


def test_a_new_conversation_knows_nothing_of_the_old_one(tmp_path: Path, endpoint: EndpointProcess) -> None:
    with chatting(tmp_path, endpoint, **COLOURFUL) as chat:
        ready(chat)
        chat.send("the word is Ingrid\r")
        chat.expect("ok")
        chat.send("/clear\r")
        chat.expect("Talking to")
        chat.send("what was the word?\r")
        chat.expect("ok")
        assert "Ingrid" not in endpoint.requests()[-1]["raw"]
        assert "\x1b[2J" in chat.raw
        chat.send("\x04")
        assert chat.end() == 0


def test_pasted_lines_are_one_message_and_wide_characters_stay_whole(tmp_path: Path, endpoint: EndpointProcess) -> None:
    with chatting(tmp_path, endpoint, **COLOURFUL) as chat:
        ready(chat)
        chat.send("\x1b[200~first 日本語\nsecond 👩‍🚀 line\n\x1b[201~")
        chat.expect("second")
        chat.send("\x7f\x7f\r")
        chat.expect("ok")
        said = json.loads(endpoint.requests()[-1]["raw"])["messages"][-1]["content"]
        text = said if isinstance(said, str) else "".join(part.get("text", "") for part in said)
        assert text.endswith("first 日本語\nsecond 👩‍🚀 lin"), "one message, and backspace takes one character"
        chat.send("\x04")
        assert chat.end() == 0


def test_the_history_is_there_the_next_time_and_only_for_its_owner(tmp_path: Path, endpoint: EndpointProcess) -> None:
    with chatting(tmp_path, endpoint, **COLOURFUL) as chat:
        ready(chat)
        chat.send("remember this line\r")
        chat.expect("ok")
        chat.send("\x04")
        assert chat.end() == 0
    assert (tmp_path / "lodger" / "state" / "chat-history").stat().st_mode & 0o777 == 0o600
    with chatting(tmp_path, endpoint, **COLOURFUL) as chat:
        ready(chat)
        chat.press_until("\x1b[A", "remember this line")
        chat.send("\x03")
        assert chat.end() == 130


def test_keys_pressed_while_the_machine_takes_its_time_are_read_at_the_next_prompt(
    tmp_path: Path, endpoint: EndpointProcess
) -> None:
    with chatting(tmp_path, endpoint, **COLOURFUL) as chat:
        ready(chat)
        daemon = process_that_listens(find_paths({"LODGER_HOME": str(tmp_path / "lodger")}).socket)
        os.kill(daemon, signal.SIGSTOP)
        try:
            chat.send("take your time\r")
            chat.until_keys_wait()
            chat.send("typed meanwhile\r\x04")
        finally:
            os.kill(daemon, signal.SIGCONT)
        assert chat.end() == 0
    assert "typed meanwhile" in (tmp_path / "lodger" / "state" / "chat-history").read_text("utf-8")


def process_that_listens(path: Path) -> int:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        pid, _, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(pid)


def test_what_is_asked_shows_hidden_characters_and_a_diff(tmp_path: Path, endpoint: EndpointProcess) -> None:
    hidden = {"name": "Bash", "arguments": {"command": "echo \u202egnp.x\u202c \x1b]52;c;eA==\x07"}}
    with chatting(tmp_path, endpoint, "--mode", "strict", **COLOURFUL) as chat:
        ready(chat)
        chat.send(script({"calls": [hidden]}, {"text": "a\x1b[2Jpity"}) + "\r")
        # The line to type on is drawn at once, and again below what is printed above it.
        chat.expect("echo \\u{202e}gnp.x\\u{202c} \\u{1b}]52;c;eA==\\u{7}")
        chat.expect("Allow it?")
        chat.send("n because of the signs\r")
        chat.expect("apity")
        assert "\x1b]52" not in chat.raw
        assert "because of the signs" in endpoint.requests()[-1]["raw"]
        chat.send("\x04")
        assert chat.end() == 0


def test_the_agents_own_questions_are_answered_by_number_or_in_words(tmp_path: Path, endpoint: EndpointProcess) -> None:
    colours = {"question": "Which colours?", "options": [{"label": "red"}, {"label": "blue"}], "multiSelect": True}
    asks = {"name": "AskUserQuestion", "arguments": {"questions": [colours, {"question": "Why?"}]}}
    with chatting(tmp_path, endpoint, **COLOURFUL) as chat:
        ready(chat)
        chat.send(script({"calls": [asks]}, {"text": "I see"}) + "\r")
        chat.expect("2. blue")
        chat.send("1, 2\r")
        chat.expect("Your answer:")
        chat.send("they please me\r")
        chat.expect("I see")
        raw = endpoint.requests()[-1]["raw"]
        assert "red, blue" in raw and "they please me" in raw
        chat.send("\x04")
        assert chat.end() == 0


@pytest.mark.parametrize("environment", [{"TERM": "xterm-256color", "NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colour_where_nobody_wants_it(
    tmp_path: Path, endpoint: EndpointProcess, environment: dict[str, str]
) -> None:
    with chatting(tmp_path, endpoint, "--mode", "strict", **environment) as chat:
        ready(chat)
        call = {"name": "Write", "arguments": {"file_path": "a.txt", "content": "x"}}
        chat.send(script({"calls": [call]}, {"text": "done"}) + "\r")
        chat.expect("Allow it?")
        chat.send("n\r")
        chat.expect("done")
        chat.send("/exit\r")
        assert chat.end() == 0
        painted = [code for code in ("\x1b[31m", "\x1b[32m", "\x1b[2m", "\x1b[1m") if code in chat.raw]
        assert painted == []
