"""What an agent changed in `.git/config` is asked about, through whole programs from the box to the client."""

import json
import sqlite3
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from support.program_client import Conversation, bash, local_client, open_conversation, script
from support.programs import Home, World, new_world
from support.real_boxes import box_user_for_tests
from support.sandbox_users import own

pytestmark = pytest.mark.timeout(120)
COMMAND = "git config core.hooksPath .husky && git config user.name Ada"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with new_world("git") as made:
        yield made


@asynccontextmanager
async def talking(home: Home) -> AsyncIterator[Conversation]:
    async with local_client(home.socket) as client:
        yield await open_conversation(client, cwd=home.workspace)


def setting(home: Home, name: str) -> str:
    command = ("git", "config", "--file", f"{home.workspace}/.git/config", name)
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


@pytest.mark.parametrize("allowed", [True, False])
async def test_a_word_of_the_person_decides_and_is_on_paper(world: World, allowed: bool) -> None:
    home = world.home("a")
    subprocess.run(("git", "init", "-q", str(home.workspace)), check=True)  # noqa: ASYNC221 - before anything runs
    own(home.workspace, box_user_for_tests())
    daemon = await world.daemon(home, endpoint=await world.endpoint())
    assert daemon.first, daemon.last_words()
    async with talking(home) as talk:
        await talk.say(script({"calls": [bash(COMMAND)]}, {"text": "done"}))
        question = await talk.question()
        # It is asked about with the earlier file in its place.
        assert setting(home, "core.hooksPath") == ""
        assert question["request"]["tool_name"] == "GitConfiguration"
        assert question["request"]["input"] == {
            "workspace": str(home.workspace),
            "settings": {"core.hookspath": ".husky"},
        }
        decision = {"behavior": "allow"} if allowed else {"behavior": "deny", "message": "no"}
        payload = {"kind": "approval_response", "request_id": question["request_id"], "decision": decision}
        await talk.client.request({"type": "input", "runtime": talk.runtime, "payload": payload})
        await talk.finished()
        result = talk.results()[-1]
    assert ("was put back" in result) is not allowed
    assert setting(home, "core.hooksPath") == (".husky" if allowed else "")
    assert setting(home, "user.name") == ("Ada" if allowed else "")
    await daemon.stop()
    with sqlite3.connect(home.lodger / "state" / "lodger.db") as database:
        rows = database.execute("SELECT action, subject, detail FROM audit WHERE action LIKE 'git.%'").fetchall()
        [(run, turn, call)] = database.execute(
            "SELECT r.run_id, r.turn_id, j.tool_call_id FROM journal j JOIN runs r ON r.run_id = j.run_id"
        ).fetchall()
    [(action, subject, detail)] = rows
    assert (action, subject) == ("git.allowed" if allowed else "git.put_back", str(home.workspace))
    work = {"conversation": "default", "turn": turn, "run": run, "calls": [call]}
    assert json.loads(detail) == {"what": "core.hookspath", "work": [work]}
