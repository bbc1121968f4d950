"""`lodger memory share`, `attach`, `shared` and `detach` as a person types them: two agents on two machines, the real
hub, real boxes and real git."""

import asyncio
import json
from typing import Any

import pytest

from support.program_client import bash, local_client, open_conversation, script
from support.programs import LODGER, Home, World, new_world

pytestmark = pytest.mark.timeout(240)
FILE = "---\\nname: harbour\\ndescription: Who rules it\\n---\\n\\nIngrid.\\n"
WRITE = (
    f"cd ~/shared-memory/team && printf -- '{FILE}' > harbour.md && git add -A"
    " && git commit -q -m 'Ingrid has the harbour'"
)


async def test_two_agents_on_two_machines_share_a_memory() -> None:
    async with new_world("shared") as world:
        await _share(world)


async def _share(world: World) -> None:
    endpoint, one, two = await world.endpoint(), world.home("one"), world.home("two")
    environment = world.environment(one, endpoint.environment)
    program = await world.start("up", [*LODGER, "up", "--json", "--port", "0"], environment, limit_s=60)
    token = ("--hub-token-file", str(one.state / "hub" / "machine.token"))
    daemon = await world.daemon(two, "--hub", program.first["hub_url"], *token, endpoint=endpoint)
    async with local_client(one.socket) as client_one, local_client(two.socket) as client_two:
        ada = await open_conversation(client_one, cwd=one.workspace)
        ben = await open_conversation(client_two, cwd=two.workspace, create_agent={"body": {"name": "Ben"}})
        ada_id, ben_id = str(ada.runtime["agent_id"]), str(ben.runtime["agent_id"])
        await ben.turn("hello")

        assert (await world.run(one, "memory", "share", "Team")).code == 2
        assert (await world.run(one, "memory", "attach", "team", "--agent", ada_id)).code == 1
        assert (await world.run(one, "memory", "share", "team", "--json")).ok().json == {"name": "team", "made": True}
        assert "nothing has changed" in (await world.run(one, "memory", "share", "team")).ok().out
        assert "the hub's machine" in (await world.run(two, "memory", "share", "other")).err
        await world.run(one, "memory", "attach", "team", "--agent", ada_id)
        await has(world, one, ada_id, lambda shared: shared["head"])
        await world.run(one, "memory", "attach", "team", "--agent", ben_id)
        await has(world, two, ben_id, lambda shared: shared["head"])
        await ben.turn("what do you have?")
        assert "Attached to you now:" in json.dumps((await endpoint.requests())[-1])

        turn = await ada.turn(script({"calls": [bash(WRITE)]}))
        assert "Shared memory team: 1 new commit published" in json.dumps(ada.client.frames[turn.after :])
        head = (await has(world, one, ada_id, lambda shared: shared["outcome"] in ("pushed", "clean")))["head"]
        await has(world, two, ben_id, lambda shared: shared["head"] == head)
        await ben.turn("what is new?")
        told = json.dumps((await endpoint.requests())[-1])
        assert "The shared memory team changed (others write there" in told
        assert "harbour.md" in told

        of_ben = ("--shared", "team", "--agent", ben_id)
        assert "Ingrid has the harbour" in (await world.run(two, "memory", "log", *of_ben)).ok().out
        nowhere = await world.run(two, "memory", "log", "nowhere.md", *of_ben)
        assert (nowhere.code, nowhere.out) == (1, ""), "as of every name that nobody has"
        assert "history changed nowhere.md" in nowhere.err, "there is more than this file in it"
        assert "Ingrid." in (await world.run(two, "memory", "show", "harbour.md", *of_ben)).ok().out
        assert "+Ingrid." in (await world.run(two, "memory", "diff", *of_ben)).ok().out
        assert (await world.run(two, "memory", "pull", *of_ben, "--json")).ok().json["outcome"] == "clean"
        assert (await world.run(two, "memory", "log", "--shared", "none", "--agent", ben_id)).code == 1
        status = (await world.run(two, "status", "--json")).ok().json
        assert [(entry["agent_id"], entry["name"]) for entry in status["shared_memories"]] == [(ben_id, "team")]

        await world.run(one, "memory", "attach", "team", "--agent", ben_id, "--read-only")
        await has(world, two, ben_id, lambda shared: shared["permissions"] == "read" and shared["head"])
        turn = await ben.turn(script({"calls": [bash("touch ~/shared-memory/team/x")]}))
        assert "Read-only file system" in json.dumps(ben.client.frames[turn.after :])
        await world.run(one, "memory", "detach", "team", "--agent", ben_id)
        gone = await until_listed(world, two, ben_id, lambda listed: not listed["shared"])
        assert len(gone["set_aside"]) == 2

        assert (await world.run(one, "memory", "unshare", "team")).code == 2
        assert "the hub's machine" in (await world.run(two, "memory", "unshare", "team", "--yes")).err
        told = (await world.run(one, "memory", "unshare", "team", "--yes")).ok().out
        assert f"team is deleted. It was attached to {ada_id}." in told
        assert "30 days: `lodger memory unshare team --undo`" in told
        gone = await until_listed(world, one, ada_id, lambda listed: not listed["shared"])
        assert len(gone["set_aside"]) == 1
        undone = {"name": "team", "deleted": False, "agents": [ada_id]}
        assert (await world.run(one, "memory", "unshare", "team", "--undo", "--json")).ok().json == undone
        assert (await has(world, one, ada_id, lambda shared: shared["head"]))["head"] == head
    await daemon.stop()
    await program.stop()


async def has(world: World, home: Home, agent_id: str, wanted: Any) -> dict[str, Any]:
    listed = await until_listed(world, home, agent_id, lambda found: found["shared"] and wanted(found["shared"][0]))
    shared: dict[str, Any] = listed["shared"][0]
    return shared


async def until_listed(world: World, home: Home, agent_id: str, wanted: Any) -> dict[str, Any]:
    """Each look asks the hub anew, so a few are enough."""
    async with asyncio.timeout(30):
        while True:
            listed: dict[str, Any] = (
                (await world.run(home, "memory", "shared", "--agent", agent_id, "--json")).ok().json
            )
            if wanted(listed):
                return listed
