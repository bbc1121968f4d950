"""A model that may call every tool tries each mechanism of the catalogues, through a daemon."""

import json
import os
import re
import sqlite3
from collections import Counter
from typing import Any

import pytest

from lodger_sandbox.host import base_interpreter
from support.beside import beside
from support.program_client import Client, Conversation, bash, local_client, open_conversation, script
from support.programs import Home, World, new_world, until
from support.sandbox_users import user_of_boxes

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes users and folders outside every private folder")
AT_ONCE = 12
"""Calls in one answer of the model."""
ANSWER_LIMIT_S = 2.0
LIMIT_S = 90.0
"""Of one such turn: some mechanisms fill what they can get first."""
PYTHON = (
    f"export BOX_PYTHON={base_interpreter().executable}; "
    "[ -x $BOX_PYTHON ] || BOX_PYTHON=$(ls /run/lodger/python/bin/python3.[0-9]* | head -n 1)"
)
TIDY = "rm -rf s l a f t gone made"
TOLD = re.compile(r"^through:(\d+)$", re.MULTILINE)


catalogue, wider = beside(__file__, "attack_catalogue"), beside(__file__, "wider_attacks")
ATTACKS: tuple[Any, ...] = (*catalogue.ATTACKS, *wider.ATTACKS)


def audited(home: Home) -> Counter[str]:
    """How often the audit log says that a call was allowed to run, by the call's id."""
    with sqlite3.connect(f"file:{home.database}?mode=ro", uri=True) as connection:
        rows = connection.execute("SELECT subject, detail FROM audit WHERE action = 'call.allowed'")
        return Counter(subject for subject, detail in rows if json.loads(detail)["tool"] == "Bash")


def call(attack: Any, around: Any) -> dict[str, Any]:
    words = f"{PYTHON}; {TIDY}; ( {catalogue.spelled_out(attack, around)}\n) > /dev/null 2>&1; echo through:$?"
    return {**bash(words), "id": attack.id}


async def play(conversation: Conversation, around: Any) -> dict[str, str]:
    """Every mechanism once; what the model was told of each."""
    told: dict[str, str] = {}
    for first in range(0, len(ATTACKS), AT_ONCE):
        some = ATTACKS[first : first + AT_ONCE]
        after = len(conversation.client.frames)
        await conversation.say(script({"calls": [call(attack, around) for attack in some]}, {"text": "next"}))
        await conversation.finished(after, LIMIT_S)
        results = conversation.deltas("tool_return_message", after)
        told |= {str(delta["tool_call_id"]): str(delta["tool_return"]) for delta in results}
    return told


async def test_none_of_them_succeeds_and_each_is_in_the_audit_log() -> None:
    async with new_world("hostile") as world:
        home, endpoint = world.home("a"), await world.endpoint()
        outside = world.workspace(world.base / "outside")
        home.state.mkdir(mode=0o700)
        with catalogue.furnished(user_of_boxes(), home.workspace, outside, home.home, home.state) as around:
            daemon = await world.daemon(home, endpoint=endpoint)
            assert daemon.first, daemon.last_words()
            async with local_client(home.socket) as client:
                conversation = await open_conversation(client, cwd=home.workspace, mode="unrestricted")
                told = await play(conversation, around)
                codes = {name: int(end[1]) for name, text in told.items() if (end := TOLD.search(text)) is not None}
                # Each came to its end, so that it was tried and not only begun.
                assert set(codes) == {attack.id for attack in ATTACKS}
                got = [attack.id for attack in ATTACKS if catalogue.got_through(attack, around, codes[attack.id])]
                assert got == []
                assert audited(home) == Counter(attack.id for attack in ATTACKS)
                await is_healthy(world, home, client, conversation, daemon.pid)


async def is_healthy(world: World, home: Home, client: Client, conversation: Conversation, pid: int) -> None:
    told = (await client.request({"type": "lodger_status"}))["status"]
    assert told["machine"]["pid"] == pid
    assert told["sandbox"]["holds"] is True, told["sandbox"]
    turn = await conversation.turn(script({"calls": [bash("echo all is well")]}, {"text": "done"}))
    assert turn.results[-1] == "all is well\n"
    assert turn.finished["stop_reason"] == "end_turn", turn.finished
    assert (await world.run(home, "status")).code == 0


async def test_a_call_that_burns_every_core_does_not_hold_up_the_daemon() -> None:
    burn = f"for i in $(seq {8 * (os.cpu_count() or 1)}); do (while :; do :; done) & done; touch burning; wait"
    async with new_world("burn") as world:
        home = world.home("a")
        daemon = await world.daemon(home, endpoint=await world.endpoint())
        assert daemon.first, daemon.last_words()
        async with local_client(home.socket) as client:
            conversation = await open_conversation(client, cwd=home.workspace, mode="unrestricted")
            begun = {"name": "Bash", "arguments": {"command": burn, "run_in_background": True}}
            await conversation.turn(script({"calls": [begun]}, {"text": "begun"}))
            await until((home.workspace / "burning").exists, "it burns")
            for _ in range(20):
                # One answer takes some 5 ms on an idle machine.
                await client.request({"type": "lodger_status"}, ANSWER_LIMIT_S)
            turn = await conversation.turn(script({"calls": [bash("echo besides")]}, {"text": "done"}))
            assert turn.results[-1] == "besides\n"
            [box] = [box for box in home.boxes() if box.record.key.workspace == str(home.workspace)]
            assert yields(box.record.runner_pid)
            assert not yields(daemon.pid)
            stop = {"type": "lodger_background_stop", "process_id": "bash_1", **conversation.runtime}
            assert (await client.request(stop))["success"]


def yields(pid: int) -> bool:
    return os.getpriority(os.PRIO_PROCESS, pid) > os.getpriority(os.PRIO_PROCESS, 0)
