"""A development server in a box, through whole programs: the person is asked, reaches it, and takes it away again."""

import asyncio
import json
import re
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from support.port_room import server_port
from support.program_client import Conversation, Frame, bash, local_client, open_conversation, script
from support.programs import Home, Program, World, new_world, until

ALWAYS = "selected_permission_suggestion_ids"
pytestmark = [
    pytest.mark.needs("bwrap"),
    pytest.mark.timeout(120),
]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with new_world("ports") as made:
        yield made


@asynccontextmanager
async def talking(home: Home) -> AsyncIterator[Conversation]:
    async with local_client(home.socket) as client:
        yield await open_conversation(client, cwd=home.workspace)


def _answers(port: int) -> str | None:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/hello.txt", timeout=5) as answer:
            return str(answer.read().decode())
    except (urllib.error.URLError, OSError):
        return None


async def answer_of(port: int) -> str | None:
    return await asyncio.to_thread(_answers, port)


def serving(port: int) -> str:
    """A turn that starts a server and then works on until the file `go` is there."""
    serve = {
        "name": "Bash",
        "arguments": {
            "command": f"echo from the box >hello.txt; exec python3 -m http.server {port}",
            "run_in_background": True,
        },
    }
    return script({"calls": [serve]}, {"calls": [bash("until [ -e go ]; do sleep 0.05; done")]}, {"text": "done"})


async def decided(talk: Conversation, question: Frame, **decision: object) -> None:
    payload = {"kind": "approval_response", "request_id": question["request_id"], "decision": decision}
    await talk.client.request({"type": "input", "runtime": talk.runtime, "payload": payload})


def go(home: Home) -> None:
    (home.workspace / "go").touch()


async def start(world: World, home: Home) -> Program:
    daemon = await world.daemon(home, endpoint=await world.endpoint())
    assert daemon.first, daemon.last_words()
    return daemon


async def test_a_server_is_offered_allowed_for_always_reached_and_closed(world: World) -> None:
    home, port = world.home("a"), server_port()
    daemon = await start(world, home)
    async with talking(home) as talk:
        await talk.say(serving(port))
        question = await talk.question()
        request = question["request"]
        assert (request["tool_name"], request["input"]) == (
            "PortAccess",
            {"ports": [port], "workspace": str(home.workspace)},
        )
        assert await answer_of(port) is None
        [always] = request["permission_suggestions"]
        await decided(talk, question, behavior="allow", **{ALWAYS: [always["id"]]})
        await until(lambda: _answers(port), "it is reached")
        assert await answer_of(port) == "from the box\n"
        go(home)
        await talk.finished()
    text = (home.lodger / "config" / "settings.toml").read_text()
    assert re.findall(r'"([^"]+)"', text) == [f"{port} in {home.workspace}"]
    assert f"open at http://127.0.0.1:{port}, opened" in (await world.run(home, "ports", "list")).out
    assert f"open at http://127.0.0.1:{port}, opened" in (await world.run(home, "status")).out

    await daemon.stop()
    assert await answer_of(port) is None
    daemon = await start(world, home)
    await until(lambda: _answers(port), "a later daemon opens it again")

    closed = await world.run(home, "ports", "close", str(port))
    assert closed.code == 0 and await answer_of(port) is None
    [listed] = json.loads((await world.run(home, "ports", "list", "--json")).out)
    assert (listed["state"], listed["local_port"], listed["listens"]) == ("denied", None, True)
    opened = json.loads((await world.run(home, "ports", "open", str(port), "--json")).out)
    assert opened["local_port"] == port and await answer_of(port) == "from the box\n"
    there = ("connect", "mine", "--base-url", f"http://127.0.0.1:{port}/v1", "--model", "x", "--api-key-file", "-")
    await world.run(home, *there, stdin="sk-mine\n")
    [moved] = json.loads((await world.run(home, "ports", "list", "--json")).out)
    assert await answer_of(port) is None, "what the agent runs is not sent the key"
    assert moved["local_port"] != port and await answer_of(moved["local_port"]) == "from the box\n"
    wrong = await world.run(home, "ports", "close", "1")
    assert wrong.code != 0 and "`lodger ports list` lists what does" in wrong.err
    await daemon.stop()


async def test_no_is_no_and_the_turn_goes_on(world: World) -> None:
    home, port = world.home("a"), server_port()
    daemon = await start(world, home)
    async with talking(home) as talk:
        await talk.say(serving(port))
        await decided(talk, await talk.question(), behavior="deny", message="no")
        go(home)
        finished = await talk.finished()
        assert finished["stop_reason"] == "end_turn"
        assert len(talk.client.of("control_request")) == 1
    assert await answer_of(port) is None
    [listed] = json.loads((await world.run(home, "ports", "list", "--json")).out)
    assert listed["state"] == "denied"
    await daemon.stop()


async def test_a_question_that_its_turn_outran_comes_again_and_a_kill_keeps_it(world: World) -> None:
    home, port = world.home("a"), server_port()
    daemon = await start(world, home)
    async with talking(home) as talk:
        await talk.say(serving(port))
        await talk.question()
        go(home)
        await talk.finished()
        hint = f"`lodger ports open {port}` opens it here"
        await talk.client.wait(lambda frame: hint in str(frame.get("delta")))
        assert await answer_of(port) is None
        (home.workspace / "go").unlink()
        after = len(talk.client.frames)
        await talk.say(script({"calls": [bash("until [ -e go ]; do sleep 0.05; done")]}, {"text": "done"}))
        await talk.question(after)
        daemon.kill()
        await daemon.wait()
    daemon = await start(world, home)
    async with local_client(home.socket) as client:
        talk = await open_conversation(client, cwd=home.workspace, agent_id=talk.runtime["agent_id"])
        question = await talk.question()
        assert question["request"]["input"]["ports"] == [port]
        await decided(talk, question, behavior="allow")
        await until(lambda: _answers(port), "it is reached")
        go(home)
    await daemon.stop()
