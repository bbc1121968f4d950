"""Commands that outlive their turn, with real processes: daemons that restart and are replaced, real boxes, a person
who watches. ATTACKS.md R5.
"""

import asyncio
import os
import shutil
import sqlite3
from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.program_client import Client, Conversation, Frame, bash, local_client, open_conversation, script
from support.programs import ROOT, Endpoint, Home, Program, World, new_world, until

pytestmark = [
    pytest.mark.needs("bwrap"),
    pytest.mark.timeout(180),
]
PACKAGES = ("protocol", "sandbox", "tools", "daemon", "hub", "cli")
BUILD = "echo compiling; read line <go; echo linked $line; exit 3"
"""A long build: it goes on when a test lets it."""


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with new_world("background") as made:
        yield made


def in_background(command: str, description: str = "The build") -> Frame:
    return {
        "name": "Bash",
        "arguments": {"command": command, "description": description, "run_in_background": True},
    }


def task_call(name: str, **arguments: Any) -> Frame:
    return {"name": name, "arguments": {"task_id": "bash_1", **arguments}}


def make_gate(home: Home) -> None:
    os.mkfifo(home.workspace / "go")
    (home.workspace / "go").chmod(0o666)


async def let_go(home: Home) -> None:
    await asyncio.to_thread((home.workspace / "go").write_text, "well\n")


async def notified(conversation: Conversation, after: int = 0, task: str = "bash_1") -> str:
    """The notification as it entered the conversation, once its turn has ended."""

    def wanted(frame: Frame) -> bool:
        delta = frame.get("delta") or {}
        return delta.get("message_type") == "user_message" and f"<task-id>{task}</task-id>" in str(delta)

    frame = await conversation.client.wait(wanted, after)
    await conversation.finished(conversation.client.frames.index(frame))
    return text_of(frame["delta"])


def text_of(delta: Frame) -> str:
    content = delta["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def processes(client: Client) -> list[Frame]:
    """As the device status that came last lists them."""
    return list(client.of("update_device_status")[-1]["device_status"]["background_processes"])


def rows(home: Home, statement: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(f"file:{home.database}?mode=ro", uri=True, timeout=10) as database:
        return list(database.execute(statement))


async def test_a_command_in_the_background_is_on_record_shown_and_told_of(world: World) -> None:
    home, endpoint = world.home("a"), await world.endpoint()
    make_gate(home)
    await world.daemon(home, endpoint=endpoint)
    async with local_client(home.socket) as client:
        conversation = await open_conversation(client, cwd=home.workspace)
        turn = await conversation.turn(script({"calls": [in_background(BUILD)]}, {"text": "started"}))
        assert turn.text == "started" and "background with ID: bash_1" in turn.results[-1]
        assert rows(home, "SELECT number, status, command FROM tasks") == [(1, "running", BUILD)]
        (shown,) = processes(client)
        assert (shown["process_id"], shown["kind"], shown["status"]) == ("bash_1", "bash", "running")
        assert shown["command"] == BUILD and shown["started_at_ms"] > 1_600_000_000_000

        looked = await conversation.turn(script({"calls": [task_call("TaskOutput", block=False)]}, {"text": "seen"}))
        assert "bash_1 (" in looked.results[-1] and "is running" in looked.results[-1]

        after = len(client.frames)
        await let_go(home)
        notice = await notified(conversation, after)
        assert "<status>failed</status>" in notice and "Exit code: 3" in notice and "The build" in notice
        assert "compiling\nlinked well" in notice and "duration_ms" in notice
        queue = client.of("update_queue", after)
        assert queue[0]["queue"][0]["kind"] == queue[0]["queue"][0]["source"] == "task_notification"
        assert processes(client) == []
        assert [row[0] for row in rows(home, "SELECT status FROM tasks")] == ["failed"]
        whole = await conversation.turn(script({"calls": [task_call("TaskOutput", offset=10)]}, {"text": "seen"}))
        assert "bytes 10 to 22 of 22" in whole.results[-1] and whole.results[-1].endswith("linked well\n")


async def test_a_command_that_takes_long_goes_on_by_itself(world: World) -> None:
    home, endpoint = world.home("a"), await world.endpoint()
    make_gate(home)
    (home.lodger / "config").mkdir()
    (home.lodger / "config" / "settings.toml").write_text("[shell]\nforeground_s = 4\n")
    await world.daemon(home, endpoint=endpoint)
    async with local_client(home.socket) as client:
        conversation = await open_conversation(client, cwd=home.workspace)
        turn = await conversation.turn(
            script({"calls": [bash("echo quick"), bash(BUILD), bash("echo next")]}, {"text": "went on"})
        )
        # Each result comes after what was shown of its output while it ran.
        assert (turn.results[1], turn.results[-1]) == ("quick\n", "next\n")
        (moved,) = (text for text in turn.results if "bash_1" in text)
        assert "Still running after 4 s" in moved and moved.endswith("compiling\n")
        await let_go(home)
        assert "linked well" in await notified(conversation, turn.after)


async def test_r5_a_long_build_outlives_three_restarts_and_an_upgrade(world: World) -> None:
    """Three daemons, two killed and one ended in good order, then one that is ended for a newer one whose boxes would
    be other boxes: the build goes on, and its output and exit code arrive once."""
    home, endpoint = world.home("a"), await world.endpoint()
    make_gate(home)
    program = await world.daemon(home, endpoint=endpoint)
    async with local_client(home.socket) as client:
        conversation = await open_conversation(client, cwd=home.workspace)
        await conversation.turn(script({"calls": [in_background(BUILD)]}, {"text": "started"}))
    runner = runners(home)
    await program.killed()
    program = await shown_by_the_next(world, home, endpoint)
    await program.killed()
    program = await shown_by_the_next(world, home, endpoint)
    assert await program.stop() == 0
    program = await shown_by_the_next(world, home, endpoint)
    assert await program.stop() == 0
    assert runners(home) == runner
    program = await shown_by_the_next(world, home, endpoint, PYTHONPATH=upgraded(world))
    async with local_client(home.socket) as client:
        conversation = await open_conversation(client)
        other = await conversation.turn(script({"calls": [bash("echo other box")]}, {"text": "ran"}))
        now = runners(home)
        assert other.results[-1] == "other box\n" and len(now) > len(runner), "the old box begins nothing new"
        assert set(runner) <= set(now), "and it was not ended"
        await let_go(home)
        notice = await notified(conversation)
        assert "compiling\nlinked well" in notice and "Exit code: 3" in notice
    await program.killed()
    await world.daemon(home, endpoint=endpoint, more_environment={"PYTHONPATH": upgraded(world)})
    assert told_times(home) == 1


def runners(home: Home) -> list[int]:
    """Of the boxes on the workspace. Those on others end with a daemon that ends in good order."""
    return [box.record.runner_pid for box in home.boxes() if box.record.key.workspace == str(home.workspace)]


async def shown_by_the_next(world: World, home: Home, endpoint: Endpoint, **environment: str) -> Program:
    """Start a daemon and see that it knows of the build."""
    program = await world.daemon(home, endpoint=endpoint, more_environment=environment)
    async with local_client(home.socket) as client:
        await open_conversation(client)
        await until(
            lambda: (
                client.of("update_device_status") and [one["process_id"] for one in processes(client)] == ["bash_1"]
            ),
            "the next daemon shows the build",
        )
    return program


def upgraded(world: World) -> str:
    """A newer version: the same packages in another folder, with another runner."""
    folder = world.base / "upgraded"
    if not folder.exists():
        folder.mkdir(mode=0o755)
        for package in PACKAGES:
            name = f"lodger_{package}"
            shutil.copytree(ROOT / package / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        with (folder / "lodger_tools" / "runner" / "main.py").open("a") as file:
            file.write("# newer\n")
    return str(folder)


def told_times(home: Home) -> int:
    return len(rows(home, "SELECT 1 FROM messages WHERE content LIKE '%<task-id>bash_1</task-id>%'"))


async def test_an_end_that_nobody_saw_is_told_by_the_next_daemon(world: World) -> None:
    home, endpoint = world.home("a"), await world.endpoint()
    make_gate(home)
    program = await world.daemon(home, endpoint=endpoint)
    async with local_client(home.socket) as client:
        conversation = await open_conversation(client, cwd=home.workspace)
        await conversation.turn(script({"calls": [in_background(BUILD)]}, {"text": "started"}))
    await program.killed()
    await let_go(home)
    await world.daemon(home, endpoint=endpoint)
    await until(lambda: told_times(home) == 1, "the end is told")
    await until(lambda: rows(home, "SELECT 1 FROM turns WHERE status = 'finished'") == [(1,), (1,)], "it is answered")
    assert rows(home, "SELECT status, exit_code FROM tasks") == [("failed", 3)]


async def test_a_task_whose_box_died_is_lost_and_told_so(world: World) -> None:
    home, endpoint = world.home("a"), await world.endpoint()
    make_gate(home)
    await world.daemon(home, endpoint=endpoint)
    async with local_client(home.socket) as client:
        conversation = await open_conversation(client, cwd=home.workspace)
        turn = await conversation.turn(script({"calls": [in_background(BUILD)]}, {"text": "started"}))
        world.end_boxes()
        notice = await notified(conversation, turn.after)
        assert "<status>lost</status>" in notice and "is not known" in notice


async def test_a_task_that_will_not_stop_is_killed_and_stays_on_record(world: World) -> None:
    home, endpoint = world.home("a"), await world.endpoint()
    make_gate(home)
    await world.daemon(home, endpoint=endpoint)
    stubborn = "trap '' TERM; (setsid sleep 600 &) ; echo deaf; while :; do read line <go; done"
    async with local_client(home.socket) as client:
        conversation = await open_conversation(client, cwd=home.workspace)
        await conversation.turn(script({"calls": [in_background(stubborn)]}, {"text": "started"}))
        after = len(client.frames)
        turn = await conversation.turn(
            script(
                {"calls": [task_call("TaskStop")]},
                {"calls": [task_call("TaskOutput")]},
                {"calls": [task_call("TaskStop", task_id="bash_2")]},
                {"text": "stopped"},
            )
        )
        stopped, output, unknown = turn.results[-3:]
        assert "was stopped (exit code: 137)" in stopped
        assert "was stopped" in output and "deaf" in output
        assert "no background task bash_2" in unknown
        notice = await notified(conversation, after)
        assert "<status>stopped</status>" in notice and "process it started still runs" in notice


async def test_ask_waits_for_what_its_turn_left_running_unless_told_not_to(world: World) -> None:
    home, endpoint = world.home("a"), await world.endpoint()
    make_gate(home)
    await world.daemon(home, endpoint=endpoint)
    text = script({"calls": [in_background(BUILD)]}, {"text": "started"})
    there = ("--cwd", str(home.workspace))
    hasty = (await world.run(home, "ask", "--no-wait", *there, text, endpoint=endpoint)).ok()
    assert hasty.out == "started\n" and "waiting" not in hasty.err
    assert rows(home, "SELECT status FROM tasks") == [("running",)]
    await let_go(home)
    await until(lambda: told_times(home) == 1, "the first build is told of")

    patient = asyncio.create_task(world.run(home, "ask", *there, text, endpoint=endpoint))
    await until(
        lambda: rows(home, "SELECT status FROM tasks WHERE number = 2") == [("running",)], "the second one runs"
    )
    await until(lambda: rows(home, "SELECT 1 FROM turns WHERE status = 'active'") == [], "its turn is over")
    assert not patient.done()
    await let_go(home)
    ran = (await patient).ok()
    assert ran.out == "started\n" and "waiting for background work (echo compiling" in ran.err
    assert rows(home, "SELECT status FROM tasks WHERE number = 2") == [("failed",)]


async def test_ask_prints_what_is_said_about_work_while_it_waits_for_other_work(world: World) -> None:
    home, endpoint = world.home("a"), await world.endpoint()
    make_gate(home)
    os.mkfifo(home.workspace / "other")
    (home.workspace / "other").chmod(0o666)
    await world.daemon(home, endpoint=endpoint)
    calls = [in_background(BUILD), in_background("read line <other")]
    text = script({"calls": calls}, {"text": "started"})
    asking = asyncio.create_task(world.run(home, "ask", "--cwd", str(home.workspace), text, endpoint=endpoint))
    ended = "SELECT 1 FROM turns WHERE status = 'finished'"
    await until(lambda: home.database.exists() and len(rows(home, ended)) == 1, "the turn of the message is over")
    await let_go(home)
    await until(lambda: told_times(home) == 1 and len(rows(home, ended)) == 2, "the build is told of and answered")
    assert not asking.done()
    await asyncio.to_thread((home.workspace / "other").write_text, "well\n")
    assert (await asking).ok().out == "started\nok\n", "nothing about the last of it, for which nobody waits"


async def test_a_session_in_a_terminal_takes_what_is_typed(world: World) -> None:
    """The tools of the codex family, had by naming them: one implementation under other names."""
    home, endpoint = world.home("a"), await world.endpoint()
    await world.daemon(home, endpoint=endpoint)
    begin = {"name": "exec_command", "arguments": {"cmd": "python3 -q", "tty": True, "yield_time_ms": 250}}
    say = {"session_id": 1, "chars": "print(6 * 7)\n", "yield_time_ms": 2000}
    leave = {"session_id": 1, "chars": "exit(5)\n", "yield_time_ms": 30_000}
    async with local_client(home.socket) as client:
        conversation = await open_conversation(client, cwd=home.workspace)
        turn = await conversation.turn(
            script(
                {"calls": [begin]},
                {"calls": [{"name": "write_stdin", "arguments": say}]},
                {"calls": [{"name": "write_stdin", "arguments": leave}]},
                {"text": "left"},
            ),
            client_tool_allowlist=["exec_command", "write_stdin"],
        )
        begun = next(text for text in turn.results if "session ID 1" in text)
        assert "Process running with session ID 1" in begun
        typed = "".join(turn.results)
        assert "\n42\n" in typed and "Process exited with code 5" in turn.results[-1]
        assert rows(home, "SELECT status, exit_code, command FROM tasks") == [("failed", 5, "python3 -q")]
        offered = (await endpoint.requests())[0]["body"]["tools"]
        assert [tool["function"]["name"] for tool in offered] == ["exec_command", "write_stdin"]
