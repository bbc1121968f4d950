"""Files of agents over the wire, in parts."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lodger_daemon.backends.local.porting import Porter
from lodger_daemon.clients import porting
from lodger_daemon.clients.porting import PortingCommands
from lodger_daemon.randomness import SeededRng
from lodger_daemon.turns.contract import ConversationError
from lodger_tools.json_value import JsonObject
from support.turn_parts import House, says


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    one = House(tmp_path)
    await one.start()
    yield one
    await one.close()


@pytest.fixture
def commands(house: House, monkeypatch: pytest.MonkeyPatch) -> PortingCommands:
    monkeypatch.setattr(porting, "PART_BYTES", 1_000)
    porter = Porter(house.database, house.clock, SeededRng(9))
    return PortingCommands(porter, house.conversations, house.folder, house.clock, SeededRng(10))


async def whole(commands: PortingCommands, **what: str) -> tuple[str, int]:
    """An export to its end, and in how many parts it came."""
    answer = await commands.export({**what})
    data, parts = str(answer["data"]), 1
    while not answer["done"]:
        answer = await commands.export({"export_id": answer["export_id"]})
        data, parts = data + str(answer["data"]), parts + 1
        assert len(str(answer["data"])) <= 1_000
    return data, parts


async def send(commands: PortingCommands, file: str, size: int = 700, **last: str) -> JsonObject:
    import_id: JsonObject = {}
    pieces = [file[start : start + size] for start in range(0, len(file), size)]
    for piece in pieces[:-1]:
        answer = await commands.import_({**import_id, "data": piece})
        import_id = {"import_id": answer["import_id"]}
    return await commands.import_({**import_id, "data": pieces[-1], "done": True, **last})


async def test_an_agent_goes_out_and_comes_in_again_in_parts(house: House, commands: PortingCommands) -> None:
    house.models.play(says("long answer " * 300))
    await house.say("tell me", "m1")
    await house.settled()
    file, parts = await whole(commands, agent_id=house.key.agent_id)
    assert parts > 3
    imported = await send(commands, file)
    assert imported["messages"] == 2
    assert imported["agent_id"] != house.key.agent_id
    alone, _ = await whole(commands, agent_id=house.key.agent_id, conversation_id="default")
    assert (await send(commands, alone, agent_id=house.key.agent_id))["messages"] == 2
    assert len(await house.conversations.list_agents()) == 2
    assert (commands._exports, commands._imports) == ({}, {})


async def test_what_cannot_be_is_refused_with_words(house: House, commands: PortingCommands) -> None:
    for command, words in (
        ({}, "Name an agent"),
        ({"agent_id": 7}, "agent_id must be a text"),
        ({"conversation_id": "default"}, "name the agent"),
        ({"conversation_id": "conv-none"}, "not found"),
        ({"agent_id": "agent-none"}, "not found"),
        ({"export_id": "export-none"}, "no such export"),
    ):
        with pytest.raises(ConversationError, match=words):
            await commands.export(command)  # type: ignore[arg-type]  # JSON
    with pytest.raises(ConversationError, match="Line 1"):
        await commands.import_({"data": "not a file", "done": True})
    with pytest.raises(ConversationError, match="no such import"):
        await commands.import_({"import_id": "import-none", "data": "x"})
    assert (commands._exports, commands._imports) == ({}, {})


async def test_no_more_than_a_few_are_under_way_and_abandoned_ones_go(house: House, commands: PortingCommands) -> None:
    await house.say("words " * 2_000, "m1")
    await house.settled()
    begun = []
    for _ in range(porting.AT_ONCE + 2):
        begun.append((await commands.export({"agent_id": house.key.agent_id}))["export_id"])
        await commands.import_({"data": "x"})
        house.clock.advance(1)
    assert list(commands._exports) == begun[2:]
    assert len(commands._imports) == porting.AT_ONCE
    house.clock.advance(porting.IDLE_LIMIT_S + 1)
    last = (await commands.export({"agent_id": house.key.agent_id}))["export_id"]
    assert list(commands._exports) == [last]
    for import_id in list(commands._imports):
        with pytest.raises(ConversationError):
            await commands.import_({"import_id": import_id, "done": True})
    assert commands._imports == {}


async def test_a_file_without_end_is_given_up(
    house: House, commands: PortingCommands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(porting, "FILE_LIMIT_BYTES", 2_000)
    import_id = (await commands.import_({"data": "x" * 1_500}))["import_id"]
    with pytest.raises(ConversationError, match="2000 bytes"):
        await commands.import_({"import_id": import_id, "data": "x" * 1_500})
    assert commands._imports == {}
