"""The story of the README with real processes: model endpoint, hub, two daemons, real boxes, real git."""

import json
import os
import shutil
import sqlite3
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from support.machine_processes import descendants
from support.persons_git import git
from support.program_client import Conversation, bash, local_client, open_conversation, remember, script
from support.programs import LODGER, Home, Program, World, new_world, until

pytestmark = pytest.mark.timeout(180)

FACT = "The harbour master is called Ingrid Solberg."


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with new_world("story") as made:
        yield made


async def up(world: World, home: Home, **environment: str) -> Program:
    program = await world.start(
        "up", [*LODGER, "up", "--json", "--port", "0"], world.environment(home, environment), limit_s=60
    )
    assert program.first.get("type") == "ready", f"{program.first} {program.last_words()}"
    return program


def rows(home: Home, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """What stands in the daemon's database now, read as a stranger would."""
    with sqlite3.connect(f"file:{home.database}?mode=ro", uri=True, timeout=10) as database:
        return list(database.execute(statement, values))


def system_prompt(request: dict[str, Any]) -> str:
    first = request["body"]["messages"][0]
    assert first["role"] == "system", first
    return str(first["content"])


async def test_the_whole_story(world: World) -> None:
    a, endpoint = world.home("a"), await world.endpoint()
    program = await up(world, a, **endpoint.environment)
    ready = program.first
    assert set(ready) == {"type", "hub_url", "client_token", "machine", "device_id", "agent", "model"}
    assert ready["model"] == "openai/scripted"

    again = (await world.run(a, "up", "--json", endpoint=endpoint, cwd=world.base)).ok()
    assert {**again.json, "agent": ""} == {**ready, "agent": ""}

    async with local_client(a.socket) as client:
        conversation = await open_conversation(client, cwd=a.workspace)
        await a_message_is_stored_and_its_answer_streams(a, conversation)
        await a_command_runs_in_a_box(a, conversation)
        await leaving_the_box_asks_first(world, a, conversation)
        turn = await conversation.turn(
            "Please remember it. " + script({"calls": [remember("harbour", FACT)]}, {"text": "kept"})
        )
        assert turn.text == "kept", turn.results
        assert "1 new commit published" in turn.results[-1]
    (await world.run(a, "ask", script({"text": "asked"}), endpoint=endpoint, cwd=world.base)).ok()
    the_hub_has_the_commit(world, a, ready["hub_url"])
    await a_second_machine_knows_the_fact(world, a, ready["hub_url"])
    await people_can_look(world, a, ready)

    tree = descendants(program.pid)
    assert len(tree) >= 4, tree  # up, hub, daemon, model worker
    boxes = a.boxes()
    assert boxes
    inside = [seen for box in boxes for seen in descendants(box.record.outer_pid)]
    assert await program.stop() == 0, program.last_words()
    await until(lambda: not [seen for seen in tree if seen.alive], "every process of `up` is gone")
    assert [seen for seen in world.strays() if "daemon-b" not in seen.command and str(a.lodger) in seen.command] == []
    await until(lambda: not [seen for seen in inside if seen.alive], "boxes in which nothing runs end with it")
    assert a.boxes() == ()
    world.end_boxes()


async def a_message_is_stored_and_its_answer_streams(home: Home, conversation: Conversation) -> None:
    after = len(conversation.client.frames)
    message_id, acknowledged = await conversation.say(
        "Say it slowly. " + script({"text": "one two three four five six", "chunks": 6, "delay_ms": 40})
    )
    stored = rows(home, "SELECT status FROM inbox WHERE client_message_id = ?", message_id)
    assert acknowledged["accepted"], acknowledged
    assert [status for (status,) in stored] in (["reserved"], ["admitted"], ["accepted"]), stored
    finished = await conversation.finished(after)
    assert finished["stop_reason"] == "end_turn", finished
    fragments = conversation.fragments(after)
    assert "".join(fragments) == "one two three four five six"
    assert len(fragments) >= 5, fragments
    times = [
        frame["emitted_at"]
        for frame in conversation.client.of("stream_delta", after)
        if frame["delta"].get("message_type") == "assistant_message"
    ]
    assert times[0] < times[-1], "all of it came at once"


async def a_command_runs_in_a_box(home: Home, conversation: Conversation) -> None:
    command = "echo in >> marker.txt; readlink /proc/self/ns/pid; echo $(ls -d /proc/[0-9]* | wc -l); cat /proc/1/comm"
    turn = await conversation.turn(script({"calls": [bash(command)]}, {"text": "ran"}))
    assert turn.text == "ran"
    namespace, count, first, *_ = turn.results[-1].split()
    assert namespace != str(Path("/proc/self/ns/pid").readlink())
    assert int(count) < 10, "the box sees its own processes only"
    assert first not in ("init", "systemd"), turn.results
    assert home.marks() == ["in"]


async def leaving_the_box_asks_first(world: World, home: Home, conversation: Conversation) -> None:
    outside = world.workspace(world.base / "elsewhere")
    for behavior in ("allow", "deny"):
        path = outside / f"{behavior}.txt"
        call = {"name": "Write", "arguments": {"file_path": str(path), "content": f"{behavior}\n"}}
        after = len(conversation.client.frames)
        await conversation.say(script({"calls": [call]}, {"text": f"done {behavior}"}))
        question = await conversation.question(after)
        assert question["request"]["tool_name"] == "Write"
        assert question["request"]["input"] == call["arguments"]
        assert not path.exists(), "nothing happens before the answer"
        assert (await conversation.answer(question, behavior, "not there"))["accepted"]
        assert (await conversation.finished(after))["stop_reason"] == "end_turn"
        assert "".join(conversation.fragments(after)) == f"done {behavior}"
        found = path.read_text() if path.exists() else None
        assert found == ("allow\n" if behavior == "allow" else None), conversation.results(after)


def the_hub_has_the_commit(world: World, home: Home, hub_url: str) -> None:
    token = (home.state / "hub" / "machine.token").read_text().strip()
    (agent,) = (home.state / "agents").iterdir()
    clone = world.base / "clone"
    git("clone", "--quiet", f"{hub_url.rstrip('/')}/v1/git/{agent.name}/state.git", str(clone), token=token)
    assert FACT in (clone / "harbour.md").read_text()
    assert "remember harbour" in git("log", "--format=%s", cwd=clone)
    shutil.rmtree(clone)


async def a_second_machine_knows_the_fact(world: World, first: Home, hub_url: str) -> None:
    b, endpoint = world.home("b"), await world.endpoint()
    token_file = first.state / "hub" / "machine.token"
    daemon = await world.daemon(b, "--hub", hub_url, "--hub-token-file", str(token_file), endpoint=endpoint)
    assert daemon.first, daemon.last_words()
    async with local_client(b.socket) as client:
        conversation = await open_conversation(client, cwd=b.workspace)
        assert [conversation.runtime["agent_id"]] == [entry.name for entry in (first.state / "agents").iterdir()]
        turn = await conversation.turn("Who runs the harbour? " + script({"text": "I know."}))
        assert turn.finished["stop_reason"] == "end_turn", turn.finished
    (request,) = [one for one in await endpoint.requests() if one["path"] == "/v1/chat/completions"]
    assert FACT in system_prompt(request)
    assert await daemon.stop() == 0, daemon.last_words()


async def people_can_look(world: World, home: Home, ready: dict[str, Any]) -> None:
    chatted = (
        await world.run(home, "chat", "--machine", ready["machine"], stdin=f"hello {script({'text': 'through it'})}\n")
    ).ok()
    assert chatted.out.strip() == "through it", chatted
    status = (await world.run(home, "status", "--json")).ok().json
    assert status["uplink"]["state"] == "connected", status
    assert status["sandbox"]["holds"] is True, status
    assert status["model"]["default"] == "openai/scripted"
    assert status["model"]["practice"] is False
    assert status["boxes"], status
    assert [agent["memory"]["ahead"] for agent in status["agents"]] == [0], status
    checks = {check["name"]: check for check in (await world.run(home, "doctor", "--json")).ok().json}
    assert checks["sandbox"]["verdict"] == checks["daemon"]["verdict"] == checks["hub"]["verdict"] == "ok", checks
    memory = (await world.run(home, "memory", "status", "--json")).ok().json
    assert memory["ahead"] == 0, memory
    log = (await world.run(home, "memory", "log", "--json")).ok().json
    assert log[0]["sha"] == memory["head"], (log, memory)
    assert "remember harbour" in [commit["message"].strip() for commit in log]
    models = (await world.run(home, "models", "--json")).ok().json
    assert [entry["handle"] for entry in models if entry.get("isDefault")] == ["openai/scripted"]
    assert "practice/practice" in [entry["handle"] for entry in models]
    ran = await world.run(home, "sandbox", "run", "--", "sh", "-c", "touch made-inside; exit 7")
    assert ran.code == 7, ran
    assert (home.workspace / "made-inside").exists()


async def test_without_a_key_the_practice_model_answers(world: World) -> None:
    a = world.home("a")
    first = (await world.run(a, "ask", "What can you do?", limit_s=90)).ok()
    assert "practice model" in first.out, first
    ran = (await world.run(a, "ask", "run `echo out of the box | tr a-z A-Z`", "--cwd", str(a.workspace))).ok()
    assert "OUT OF THE BOX" in ran.out, ran
    (await world.run(a, "ask", "Remember that my sister's birthday is on 3 May")).ok()
    recalled = (await world.run(a, "ask", "What do you know about my sister?", "--conversation", "new", "--json")).ok()
    assert recalled.json["type"] == "result"
    assert "3 May" in recalled.json["result"], recalled.json
    models = (await world.run(a, "models", "--json")).ok().json
    assert [entry["handle"] for entry in models if entry.get("isDefault")] == ["practice/practice"], models
    log = (await world.run(a, "memory", "log", "--json")).ok().json
    assert len(log) == 2, log
    # `ask` starts a daemon for the call and ends it again.
    assert world.strays() == []


@pytest.mark.skipif(os.getuid() != 0, reason="hiding a file from one process takes a mount of its own, hence root")
async def test_without_a_sandbox_tools_refuse_and_doctor_says_why(world: World) -> None:
    a, endpoint = world.home("a"), await world.endpoint()
    bwraps = [place for place in ("/usr/bin/bwrap", "/bin/bwrap", "/usr/local/bin/bwrap") if Path(place).exists()]
    real = sorted({str(Path(place).resolve()) for place in bwraps})
    hide = " && ".join(f"mount --bind /dev/null {place}" for place in real)
    hidden = ("unshare", "--mount", "sh", "-c", f'{hide} && exec "$@"', "sh")
    daemon = await world.daemon(a, endpoint=endpoint, argv=(*hidden, *LODGER))
    assert daemon.first, daemon.last_words()
    async with local_client(a.socket) as client:
        conversation = await open_conversation(client, cwd=a.workspace)
        write = {"name": "Write", "arguments": {"file_path": str(a.workspace / "x.txt"), "content": "x"}}
        turn = await conversation.turn(
            script({"calls": [bash("echo ran >> marker.txt")]}, {"calls": [write]}, {"text": "so it is"})
        )
        assert turn.finished["stop_reason"] == "end_turn", turn.finished
        assert turn.text == "so it is"
        assert all("bwrap" in result or "bubblewrap" in result for result in turn.results), turn.results
    assert not a.marker.exists()
    assert not (a.workspace / "x.txt").exists()
    status = (await world.run(a, "status", "--json", endpoint=endpoint)).ok().json
    assert status["sandbox"]["holds"] is False
    doctor = await world.run(a, "doctor", "--json", endpoint=endpoint, prefix=hidden)
    assert doctor.code == 1, doctor
    (check,) = [check for check in doctor.json if check["name"] == "sandbox"]
    assert check["verdict"] == "wrong"
    assert "bubblewrap" in json.dumps(check) or "bwrap" in json.dumps(check), check
    refused = await world.run(a, "sandbox", "run", "--", "true", prefix=hidden)
    assert refused.code != 0, refused
    assert sys.executable not in refused.err, "a message, not a trace"
