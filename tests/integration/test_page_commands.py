"""What a page asks, of a real daemon with real boxes, real git and a real agent's memory."""

from typing import Any

import pytest

from support.program_client import Client, Conversation, bash, local_client, open_conversation, script
from support.programs import LODGER, World, new_world

pytestmark = pytest.mark.timeout(120)


async def ask(client: Client, command: str, **fields: Any) -> dict[str, Any]:
    answer = await client.request({"type": command, **fields})
    return dict(answer)


async def test_a_page_looks_around() -> None:
    async with new_world("page") as world:
        await _look_around(world)


async def _look_around(world: World) -> None:
    home, endpoint = world.home("machine"), await world.endpoint()
    program = await world.start(
        "daemon", [*LODGER, "app-server"], world.environment(home, endpoint.environment), limit_s=60
    )
    assert program.first, program.last_words()
    world.workspace(home.workspace / "notes")
    (home.workspace / "README.md").write_text("hello world\n")
    async with local_client(home.socket) as client:
        info = await ask(client, "app_server_info")
        assert info["capabilities"]["memory_management"] is True
        conversation = await open_conversation(client, cwd=home.workspace)
        agent = conversation.runtime["agent_id"]

        note = "---\nname: harbour\ndescription: Who rules it\n---\n\nIngrid.\n"
        written = await ask(client, "write_memory_file", agent_id=agent, path="notes/harbour.md", content=note)
        assert written["committed"], written
        await client.request({"type": "lodger_memory_settled", "agent_id": agent, "limit_s": 30})
        turn = await conversation.turn(
            script({"calls": [bash("cat $MEMORY_DIR/notes/harbour.md; sleep 900 & echo started")]})
        )
        assert "Ingrid" in "".join(turn.results), program.last_words()
        listed = await ask(client, "list_memory", agent_id=agent)
        assert "notes/harbour.md" in [entry["relative_path"] for entry in listed["entries"]]

        folder = await ask(client, "list_in_directory", path=str(home.workspace), include_files=True)
        assert (folder["folders"], folder["files"]) == (["notes"], ["README.md"])
        read = await ask(client, "read_file", path=f"{home.workspace}/README.md")
        assert read["content"] == "hello world\n"
        for path in (str(home.lodger), f"{home.workspace}/../lodger/state/lodger.db", "/etc/passwd"):
            refused = await ask(client, "read_file", path=path)
            assert "no folder that an agent" in refused["error"]
        (home.workspace / "state").symlink_to(home.lodger)
        assert not (await ask(client, "read_file", path=f"{home.workspace}/state/state/app-server.token"))["success"]
        assert not (await ask(client, "list_in_directory", path=f"{home.workspace}/state/state/secrets"))["success"]

        status = await client.request({"type": "sync", "runtime": conversation.runtime, "force_device_status": True})
        assert status["success"]
        shown = client.of("update_device_status")[-1]["device_status"]
        assert [process["kind"] for process in shown["background_processes"]] == ["bash"]

        chosen = await ask(client, "set_boot_working_directory", cwd=f"{home.workspace}/notes")
        assert chosen["boot_working_directory"] == f"{home.workspace}/notes"
        folders = await ask(client, "get_cwd_map")
        assert str(home.workspace) in folders["cwd_map"].values()
        fork = await ask(
            client,
            "conversation_fork",
            conversation_id=conversation.runtime["conversation_id"],
            body={"agent_id": agent},
        )
        assert fork["success"], fork
        await _what_waits_is_told(world, client, conversation)


async def _what_waits_is_told(world: World, client: Client, conversation: Conversation) -> None:
    """Which conversation has a question, and what stands in its queue."""
    path = world.workspace(world.base / "elsewhere") / "x.txt"
    write = {"name": "Write", "arguments": {"file_path": str(path), "content": "x"}}
    await conversation.say(script({"calls": [write]}))
    await conversation.question()
    await conversation.say("later")
    waiting = await ask(client, "lodger_waiting")
    (question,), (queue,) = waiting["questions"]["open"], waiting["queues"]
    for one in (question, queue):
        assert {name: one[name] for name in ("agent_id", "conversation_id")} == conversation.runtime
    assert (question["tool"], queue["waiting"], queue["parked"]) == ("Write", 1, 0)
    assert queue["turn_since"] is not None
