"""`lodger memory …` as a person types it: two machines, the real hub, real boxes and real git."""

import asyncio
from pathlib import Path

import pytest

from lodger_daemon.identity import AgentId
from lodger_daemon.memory.core.writers import WriterKind
from lodger_daemon.paths import Paths
from support.program_client import local_client, open_conversation, remember, script
from support.programs import LODGER, Home, Ran, World, free_port, new_world
from support.writer_daemon import writer_daemon

pytestmark = pytest.mark.timeout(240)


def note(fact: str) -> str:
    return f"---\nname: harbour\ndescription: Who rules it\n---\n\n{fact}\n"


async def write(home: Home, fact: str, agent: str) -> None:
    """A person writes a fact by a client."""
    async with local_client(home.socket) as client:
        frame = {"type": "write_memory_file", "agent_id": agent, "path": "harbour.md", "content": note(fact)}
        assert (await client.request(frame))["committed"]
        await client.request({"type": "lodger_memory_settled", "agent_id": agent, "limit_s": 20})


async def test_a_conflict_is_seen_and_settled_by_hand() -> None:
    async with new_world("memory") as world:
        await _settle_by_hand(world)


async def _settle_by_hand(world: World) -> None:
    endpoint, one, two = await world.endpoint(), world.home("one"), world.home("two")
    environment = world.environment(one, endpoint.environment)
    program = await world.start("up", [*LODGER, "up", "--json", "--port", "0"], environment, limit_s=60)
    async with local_client(one.socket) as client:
        agent = str((await open_conversation(client, cwd=one.workspace)).runtime["agent_id"])
    await write(one, "Nobody.", agent)
    token = ("--hub-token-file", str(one.state / "hub" / "machine.token"))
    hub = ("--hub", program.first["hub_url"], *token)
    daemon = await world.daemon(two, *hub, endpoint=endpoint)
    assert "Nobody." in (await world.run(two, "memory", "show", "harbour.md")).ok().out
    await daemon.stop()
    checked = (await world.run(one, "memory", "check", "--json")).ok().json
    assert [(entry["repository"].rsplit("/", 1)[1], entry["whole"]) for entry in checked] == [
        ("published.git", True),
        ("state.git", True),
    ]
    await write(one, "Ingrid.", agent)
    daemon = await world.daemon(two, "--hub", f"http://127.0.0.1:{free_port()}", *token, endpoint=endpoint)
    await write(two, "Olav.", agent)
    await daemon.stop()
    daemon = await world.daemon(two, *hub, endpoint=endpoint)

    pulled = await world.run(two, "memory", "pull", "--json", limit_s=90)
    assert (pulled.code, pulled.json["outcome"]) == (1, "conflict")
    assert (pulled.json["conflict"]["kind"], pulled.json["conflict"]["paths"]) == ("paths", ["harbour.md"])
    choices = (await world.run(two, "memory", "resolve")).ok().out
    assert "harbour.md" in choices
    theirs = pulled.json["conflict"]["remote"]
    assert "Ingrid." in (await world.run(two, "memory", "show", "harbour.md", "--at", theirs[:12])).ok().out
    assert "Olav." in (await world.run(two, "memory", "show", "harbour.md")).ok().out
    wrong = await world.run(two, "memory", "resolve", "other.md", "--ours")
    assert (wrong.code, "not in conflict" in wrong.err) == (1, True)
    words = ("memory", "resolve", "harbour.md", "--file", "-", "--json")
    settled = (await world.run(two, *words, stdin=note("Ingrid, and Olav in summer."), limit_s=90)).ok().json
    assert (settled["settled"], settled["left"], settled["outcome"], settled["conflict"]) == (True, [], "pushed", None)
    kept = (await world.run(two, "memory", "status", "--json")).ok().json["kept"]
    # The other machine's side is part of main by now.
    assert (kept["refs"], kept["set_aside"]) == ({"conflict": 1}, [])
    assert (
        f"1 side(s) of conflicts: {kept['bytes'] / 1e6:.1f} MB" in (await world.run(two, "memory", "status")).ok().out
    )
    await world.run(one, "memory", "pull", limit_s=90)
    assert "Olav in summer" in (await world.run(one, "memory", "show", "harbour.md")).ok().out
    await _look_after_what_is_kept(world, two)
    await daemon.stop()
    await program.stop()


async def _look_after_what_is_kept(world: World, home: Home) -> None:
    async def kept(*words: str) -> Ran:
        return await world.run(home, "memory", "kept", *words, limit_s=90)

    (one,) = (await kept("--json")).ok().json
    listed = (await kept()).ok()
    assert one["name"] in listed.out
    assert "--restore" in listed.err
    assert "Olav." in (await world.run(home, "memory", "show", "harbour.md", "--at", one["commit"])).ok().out
    assert (
        f"The memory's files are those of {one['name']}, at commit" in (await kept(one["name"], "--restore")).ok().out
    )
    assert "Olav.\n" in (await world.run(home, "memory", "show", "harbour.md")).ok().out
    assert (await kept(one["name"], "--restore", "--json")).ok().json["changed"] is False
    assert ((await kept("--drop")).code, (await kept(one["name"], "--drop")).code) == (2, 2)
    assert (await kept("conflict/none", "--drop", "--yes")).code == 1
    assert (await kept("--json")).json == [one]
    assert (await kept(one["name"], "--drop", "--yes", "--json")).ok().json == []
    assert (await kept()).ok().out == "Nothing is kept beside this memory.\n"
    await world.run(home, "memory", "push", limit_s=90)
    assert (await world.run(home, "memory", "show", "harbour.md", "--at", one["commit"])).code == 1


async def test_a_memory_goes_into_a_file_and_back() -> None:
    async with new_world("backup") as world:
        await _there_and_back(world)


async def _there_and_back(world: World) -> None:
    endpoint, home = await world.endpoint(), world.home("one")
    daemon = await world.daemon(home, endpoint=endpoint)
    async with local_client(home.socket) as client:
        conversation = await open_conversation(client, cwd=home.workspace)
        agent = str(conversation.runtime["agent_id"])
        await conversation.turn(script({"calls": [remember("harbour", "Ingrid rules it.")]}))

    async def memory(where: Home, *words: str, stdin: str = "") -> Ran:
        return await world.run(where, "memory", *words, stdin=stdin)

    shown = (await memory(home, "show", "harbour.md")).ok()
    assert "Ingrid rules it." in shown.out
    assert "Ingrid" in (await memory(home, "diff")).ok().out
    assert [one["message"] for one in (await memory(home, "log", "harbour.md", "--json")).ok().json] == [
        "remember harbour"
    ]
    assert (await memory(home, "show", ".git/config")).code == 1
    assert (await memory(home, "show", "harbour.md", "--at", "main~1")).code == 1
    assert (await memory(home, "resolve")).ok().out == "Nothing is in conflict.\n"
    assert (await memory(home, "resolve", "--ours")).code == 1
    assert (await memory(home, "resolve", "--ours", "--theirs")).code == 2
    assert "no remote" in (await memory(home, "push")).out
    file = Path(world.base / "memory.bundle")
    assert (await memory(home, "backup", str(file), "--json")).ok().json["agent_id"] == agent
    assert (await memory(home, "backup", str(file))).code == 1
    assert (await memory(home, "export", str(world.base / "out"))).ok()
    assert "Ingrid" in (world.base / "out" / "harbour.md").read_text()
    await daemon.stop()

    other = world.home("two")
    assert (await memory(other, "restore", str(file), "--json")).ok().json == {
        "agent_id": agent,
        "head": (await memory(home, "log", "--json", "--limit", "1")).ok().json[0]["sha"],
        "changed": True,
    }
    assert "Ingrid rules it." in (await memory(other, "show", "harbour.md")).ok().out


async def test_writers_are_seen_and_what_is_kept_of_one_is_merged_or_dropped() -> None:
    async with new_world("writers") as world:
        await _look_after_writers(world)


async def _look_after_writers(world: World) -> None:
    endpoint, home = await world.endpoint(), world.home("one")
    program = await world.daemon(home, endpoint=endpoint)
    async with local_client(home.socket) as client:
        agent = str((await open_conversation(client, cwd=home.workspace)).runtime["agent_id"])
    assert (await world.run(home, "memory", "writers")).ok().out == "Nobody has written in the background.\n"
    await program.stop()
    paths = Paths(home.lodger / "config", home.state, home.workspace, home.home)
    async with writer_daemon(paths, AgentId(agent)) as cut_off:
        for kind, name in ((WriterKind.REFLECTION, "one"), (WriterKind.REPAIR, "two")):
            opened = await cut_off.writers.open(AgentId(agent), kind)
            text = f"cat >{name}.md <<'END'\n{note(name)}END\ngit add {name}.md && git commit -q -m {name}"
            await cut_off.does(opened, text)

    program = await world.daemon(home, endpoint=endpoint)
    found = []
    async with asyncio.timeout(60):
        while [one["state"] for one in found] != ["rescued", "rescued"]:
            found = (await world.run(home, "memory", "writers", "--json")).ok().json
    repair, reflection = found
    assert (await world.run(home, "status", "--json")).json["memory_writers"] == [reflection, repair]
    assert (repair["kind"], reflection["kind"]) == ("repair", "reflection")
    listed = (await world.run(home, "memory", "writers", reflection["writer_id"])).ok()
    assert "why: the daemon ended while it ran" in listed.out
    assert "--merge or --drop" in listed.err
    assert "+one" in (await world.run(home, "memory", "diff", reflection["tip"])).ok().out
    wrong = await world.run(home, "memory", "writers", "--merge")
    assert (wrong.code, (await world.run(home, "memory", "writers", "nobody", "--drop")).code) == (2, 1)
    merged = (await world.run(home, "memory", "writers", reflection["writer_id"], "--merge", "--json")).ok().json
    assert [one["state"] for one in merged] == ["merged"]
    assert "one" in (await world.run(home, "memory", "show", "one.md")).ok().out
    again = await world.run(home, "memory", "writers", reflection["writer_id"], "--cancel")
    assert (again.code, "has ended already" in again.err) == (1, True)
    dropped = (await world.run(home, "memory", "writers", repair["writer_id"], "--drop", "--json")).ok().json
    assert [one["state"] for one in dropped] == ["abandoned"]
    assert (await world.run(home, "memory", "show", "two.md")).code == 1
    assert list((home.state / "agents" / agent / "writers").iterdir()) == []
    await program.stop()
