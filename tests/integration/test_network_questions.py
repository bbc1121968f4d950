"""A person is asked about a host while a command waits for it: through whole programs, from the box to the client.

The name `localhost` stands for a host that nobody listed; the address behind it is listed, as it has to be.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from support.broker_rig import upstream
from support.program_client import Conversation, bash, local_client, open_conversation, script
from support.programs import Home, Program, World, new_world

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nREACHED"
ALWAYS = "selected_permission_suggestion_ids"
pytestmark = pytest.mark.timeout(120)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with new_world("network") as made:
        yield made


async def start(world: World, home: Home, endpoint: str) -> Program:
    daemon = await world.daemon(home, endpoint=endpoint)
    assert daemon.first, daemon.last_words()
    return daemon


def allow(home: Home, port: int) -> None:
    settings = home.lodger / "config" / "settings.toml"
    settings.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    settings.write_text(f'# mine\n[network]\nallow = ["127.0.0.1:{port}"]\n')


@asynccontextmanager
async def talking(home: Home) -> AsyncIterator[Conversation]:
    async with local_client(home.socket) as client:
        yield await open_conversation(client, cwd=home.workspace)


def fetch(port: int) -> str:
    url = f"http://localhost:{port}/"
    return script({"calls": [bash(f"curl -sS -m 60 --noproxy '' {url}")]}, {"text": "done"})


async def decided(talk: Conversation, question: dict[str, object], **decision: object) -> None:
    payload = {"kind": "approval_response", "request_id": question["request_id"], "decision": decision}
    await talk.client.request({"type": "input", "runtime": talk.runtime, "payload": payload})


async def test_the_command_goes_on_with_the_answer(world: World) -> None:
    home = world.home("a")
    async with upstream(ANSWER) as there:
        allow(home, there.port)
        daemon = await start(world, home, await world.endpoint())
        async with talking(home) as talk:
            await talk.say(fetch(there.port))
            question = await talk.question()
            request = question["request"]
            assert (request["tool_name"], request["input"]) == (
                "NetworkAccess",
                {"hosts": [f"localhost:{there.port}"]},
            )
            [always] = request["permission_suggestions"]
            await decided(talk, question, behavior="allow", **{ALWAYS: [always["id"]]})
            await talk.finished()
            assert talk.results()[-1] == "REACHED"
            assert (await talk.turn(fetch(there.port))).results[-1] == "REACHED"
            assert len(talk.client.of("control_request")) == 1
        text = (home.lodger / "config" / "settings.toml").read_text()
        assert text.startswith("# mine\n")
        assert re.findall(r'"([^"]+)"', text) == [f"127.0.0.1:{there.port}", f"localhost:{there.port}"]
        await daemon.stop()


async def test_no_is_no_and_is_told(world: World) -> None:
    home = world.home("a")
    async with upstream(ANSWER) as there:
        allow(home, there.port)
        await start(world, home, await world.endpoint())
        async with talking(home) as talk:
            await talk.say(fetch(there.port))
            await decided(talk, await talk.question(), behavior="deny", message="no")
            await talk.finished()
            assert f"[No connection to localhost:{there.port}" in talk.results()[-1]
            assert there.received == []


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "stopped"])
async def test_connection_and_question_survive_a_restart(world: World, killed: bool) -> None:
    """R5: the command waits in its box, its connection in the broker, the question in the store."""
    home = world.home("a")
    async with upstream(ANSWER) as there:
        allow(home, there.port)
        endpoint = await world.endpoint()
        daemon = await start(world, home, endpoint)
        async with talking(home) as talk:
            await talk.say(fetch(there.port))
            question = await talk.question()
            if killed:
                await daemon.killed()
            else:
                await daemon.stop()
        await start(world, home, endpoint)
        async with talking(home) as talk:
            again = await talk.question()
            assert again["request_id"] == question["request_id"]
            await decided(talk, again, behavior="allow")
            await talk.finished()
            assert talk.results()[-1] == "REACHED"


async def test_what_a_command_in_the_background_is_refused_is_told_to_the_person_and_with_its_end(world: World) -> None:
    """No turn runs, so nobody is asked."""
    home = world.home("a")
    os.mkfifo(home.workspace / "go")
    (home.workspace / "go").chmod(0o666)
    async with upstream(ANSWER) as there:
        allow(home, there.port)
        await start(world, home, await world.endpoint())
        async with talking(home) as talk:
            command = f"read line <go; curl -sS -m 20 --noproxy '' http://localhost:{there.port}/"
            call = {"name": "Bash", "arguments": {"command": command, "run_in_background": True}}
            turn = await talk.turn(script({"calls": [call]}, {"text": "started"}))
            await asyncio.to_thread((home.workspace / "go").write_text, "on\n")
            note = await talk.client.wait(lambda frame: "no turn ran" in str(frame.get("delta")), turn.after)
            assert note["delta"]["message_type"] == "status"
            assert f"localhost:{there.port}" in note["delta"]["message"]
            told = await talk.client.wait(lambda frame: "<task-notification>" in str(frame.get("delta")), turn.after)
            assert f"[No connection to localhost:{there.port}: it is not on the list" in str(told["delta"])
            await talk.finished(talk.client.frames.index(told))
            assert talk.client.of("control_request") == []
            assert there.received == []


@pytest.mark.parametrize("restarted", [False, True], ids=["same daemon", "later daemon"])
async def test_a_line_about_a_box_finds_who_worked_there_last(world: World, restarted: bool) -> None:
    """Also after a turn that ran nothing, and where nobody has begun one since the daemon started."""
    home = world.home("a")
    os.mkfifo(home.workspace / "go")
    (home.workspace / "go").chmod(0o666)
    async with upstream(ANSWER) as there:
        allow(home, there.port)
        endpoint = await world.endpoint()
        daemon = await start(world, home, endpoint)
        async with talking(home) as talk:
            command = f"read line <go; curl -sS -m 20 --noproxy '' http://localhost:{there.port}/"
            call = {"name": "Bash", "arguments": {"command": command, "run_in_background": True}}
            await talk.turn(script({"calls": [call]}, {"text": "started"}))
            await talk.turn(script({"text": "nothing to do"}))
        if restarted:
            await daemon.stop()
            await start(world, home, endpoint)
        async with talking(home) as talk:
            await asyncio.to_thread((home.workspace / "go").write_text, "on\n")
            note = await talk.client.wait(lambda frame: "no turn ran" in str(frame.get("delta")), 0)
            assert f"localhost:{there.port}" in note["delta"]["message"]
