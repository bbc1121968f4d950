"""`lodger ask` as scripts use it: what stands where, and which exit code says what."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lodger_cli.terminal import Exit
from support.endpoint_process import EndpointProcess, model_endpoint
from support.programs import HEEDING
from support.terminal import Terminal

LIMIT_S = 30.0
PNG = b"\x89PNG\r\n\x1a\n" + bytes(64)
WRITE = {"name": "Write", "arguments": {"file_path": "a.txt", "content": "x"}}


def script(*steps: dict[str, Any]) -> str:
    return f"<<{json.dumps({'steps': list(steps)})}>>"


class Place:
    """One daemon that runs all the while, and `lodger` commands beside it."""

    def __init__(self, home: Path, endpoint: EndpointProcess) -> None:
        self.endpoint = endpoint
        self.home = home
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "LODGER_HOME": str(home / "lodger"),
            "LANG": "C.UTF-8",
            "OPENAI_BASE_URL": f"{endpoint.url}/v1",
            "OPENAI_API_KEY": "a-key-for-tests",
        }

    def start(self, *arguments: str, **more: Any) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-m", "lodger_cli.main", *arguments]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([*HEEDING, *argv], env=self.environment, **(pipes | more))

    def ask(self, *arguments: str, stdin: str = "") -> tuple[int, str, str]:
        process = self.start("ask", "--conversation", "new", *arguments)
        out, err = process.communicate(stdin.encode(), LIMIT_S)
        return process.returncode, out.decode(), err.decode()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with model_endpoint() as endpoint:
        place = Place(tmp_path_factory.mktemp("ask"), endpoint)
        daemon = place.start("daemon", stderr=subprocess.DEVNULL)
        assert daemon.stdout is not None
        daemon.stdout.readline()
        yield place
        daemon.terminate()
        daemon.communicate(timeout=LIMIT_S)


def test_the_answer_and_nothing_else_stands_on_standard_output(place: Place) -> None:
    assert place.ask(script({"text": "grüß dich"})) == (0, "grüß dich\n", "")


def test_the_message_may_come_from_standard_input(place: Place) -> None:
    assert place.ask("-", stdin="a question\nof two lines") == (0, "ok\n", "")
    assert "a question\\nof two lines" in place.endpoint.requests()[-1]["raw"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([script({"fault": {"status": 400, "message": "no such thing"}})], Exit.MODEL_FAILED, "the turn ended with"),
        (["--mode", "strict", script({"calls": [WRITE]}, {"text": "a pity"})], Exit.NOT_ALLOWED, "not everything ran"),
        (["--mode", "strict", "--max-turns", "1", script({"calls": [WRITE]})], Exit.LIMIT, "max_steps"),
        (["--timeout", "1", script({"text": "a b c", "hang_after": 1})], Exit.LIMIT, "longer than 1 s"),
        ([script({"text": "cut", "finish": "length"})], Exit.LIMIT, "max_tokens_exceeded"),
        (["--agent", "agent-nobody", "hello"], Exit.REFUSED, "agent-nobody"),
        (["--model", "nobody/knows", "hello"], Exit.REFUSED, "cannot be used"),
        (["--mode", "wild", "hello"], Exit.USAGE, "there is no mode wild"),
        (["  "], Exit.USAGE, "nothing to ask"),
        (["--image", "/nowhere.png", "look"], Exit.USAGE, "cannot be read"),
        (["--image", "/etc/hostname", "look"], Exit.USAGE, "no picture"),
        (["--max-turns", "0", "hello"], Exit.USAGE, "--max-turns"),
    ],
)
def test_every_way_to_end_has_its_exit_code(place: Place, arguments: list[str], code: Exit, words: str) -> None:
    found, _, err = place.ask(*arguments)
    assert (found, words in err) == (code, True), err


def test_without_a_daemon_that_can_start_the_exit_code_says_so(tmp_path: Path, place: Place) -> None:
    alone = Place(tmp_path, place.endpoint)
    (tmp_path / "lodger" / "config").mkdir(parents=True)
    (tmp_path / "lodger" / "config" / "settings.toml").write_text("no toml at all")
    code, out, err = alone.ask("hello")
    assert (code, out) == (Exit.UNREACHABLE, "")
    assert "settings.toml" in err


def test_json_is_frames_and_a_result_and_nothing_else(place: Place) -> None:
    code, out, err = place.ask("--json", "--mode", "strict", script({"calls": [WRITE]}, {"text": "a pity"}))
    frames = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (Exit.NOT_ALLOWED, "")
    result = frames[-1]
    assert (result["type"], result["status"], result["exit_code"]) == ("result", "completed", Exit.NOT_ALLOWED)
    assert result["result"] == "a pity"
    assert [call["by"] for call in result["refused_calls"]] == ["nobody"]
    assert {"stream_delta", "update_loop_status", "turn_finished"} <= {frame["type"] for frame in frames}


def test_a_picture_goes_along(place: Place, tmp_path: Path) -> None:
    picture = tmp_path / "photo.png"
    picture.write_bytes(PNG)
    code, _, err = place.ask("--image", str(picture), "what is this?")
    assert code == 0, err
    raw = place.endpoint.requests()[-1]["raw"]
    assert "what is this?" in raw
    assert "image" in raw


def test_ctrl_c_stops_the_turn_and_exits_with_130(place: Place) -> None:
    before = len(place.endpoint.requests())
    process = place.start("ask", "--conversation", "new", script({"text": "a b c", "hang_after": 1}))
    place.endpoint.wait_until(lambda seen: len(seen) > before, LIMIT_S)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == Exit.INTERRUPTED
    assert b"Traceback" not in err
    place.endpoint.wait_until(lambda seen: seen[before]["state"] == "gone", LIMIT_S)


def test_nobody_reads_any_more_and_it_ends_quietly(place: Place) -> None:
    process = place.start("ask", "--json", "--conversation", "new", script({"numbered": 400, "delay_ms": 5}))
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(LIMIT_S) == Exit.PIPE_CLOSED
    assert process.stderr.read() == b""
    process.stderr.close()


def test_in_a_terminal_a_question_is_answered_and_a_standing_no_is_told(place: Place) -> None:
    arguments = ["ask", "--conversation", "new", "--mode", "strict", script({"calls": [WRITE]}, {"text": "a pity"})]
    environment = {name: value for name, value in place.environment.items() if name not in ("PATH", "HOME", "LANG")}
    with Terminal(place.home, *arguments, **environment) as terminal:
        asked = terminal.expect("Allow it?")
        assert "+x" in asked
        terminal.send("no not now\r")
        terminal.expect("a pity")
        assert terminal.end() == Exit.NOT_ALLOWED
    assert "not now" in place.endpoint.requests()[-1]["raw"]


def test_escapes_of_an_answer_drive_no_terminal_but_stay_in_a_file(place: Place) -> None:
    painted = script({"text": "red \x1b[31mpaint\x1b[0m"})
    assert place.ask(painted)[1] == "red \x1b[31mpaint\x1b[0m\n"
    environment = {name: value for name, value in place.environment.items() if name not in ("PATH", "HOME", "LANG")}
    with Terminal(place.home, "ask", "--conversation", "new", painted, **environment) as terminal:
        terminal.expect("red paint")
        assert terminal.end() == 0
        assert "\x1b[31m" not in terminal.raw
