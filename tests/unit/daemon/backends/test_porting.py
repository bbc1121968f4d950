"""Agents and conversations go out as files and come back the same; whatever else is in a file is refused."""

import io
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from lodger_daemon.backends.core.portable import Writer
from lodger_daemon.backends.core.portable_reading import NotPortable, read_portable
from lodger_daemon.backends.local.porting import Porter
from lodger_daemon.backends.local.search import HistorySearch, Wanted
from lodger_daemon.clock import WallTime
from lodger_daemon.identity import AgentId, ConversationKey
from lodger_daemon.models.contract import UserMessage
from lodger_daemon.randomness import SeededRng
from lodger_daemon.turns.contract import ConversationError
from lodger_daemon.turns.core import events as seen
from lodger_daemon.turns.core.stop_reasons import StopReason
from support.turn_parts import House, calls, says


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    one = House(tmp_path)
    await one.start()
    yield one
    await one.close()


@pytest.fixture
async def other(tmp_path: Path) -> AsyncIterator[House]:
    (tmp_path / "other").mkdir()
    one = House(tmp_path / "other")
    one._seed = 500
    await one.start()
    yield one
    await one.close()


def porter(house: House, seed: int = 77) -> Porter:
    return Porter(house.database, house.clock, SeededRng(seed))


async def talk(house: House) -> None:
    """A conversation with a call, a compaction and a fork."""
    house.models.play(calls("ls"), says("Two files. \ud83d"))
    await house.say("What is here? 茶", "m1")
    await house.settled()
    for number in range(4):
        await house.say(f"Question {number}", f"q{number}")
        await house.settled()
    house.models.play(says("They looked at files."))
    report = await house.conversations.compact(house.key)
    assert report["compacted"], report
    await house.say("And now?", "m9")
    await house.settled()
    await house.conversations.update_conversation(house.key, {"summary": "Files", "tags": ["a"], "archived": True})
    await house.conversations.fork_conversation(house.key, hidden=True)


async def exported(house: House) -> list[bytes]:
    return [line async for line in porter(house).export_agent(house.key.agent_id)]


async def shown(house: House, key: ConversationKey) -> list[dict[str, Any]]:
    """Everything of a conversation but ids and what belongs to a machine."""
    messages = await house.conversations.list_messages(key, limit=500, descending=False)
    return [{name: value for name, value in message.items() if name not in ("id", "otid")} for message in messages]


async def test_an_agent_comes_back_on_another_machine_as_it_was(house: House, other: House) -> None:
    await talk(house)
    lines = await exported(house)
    imported = await porter(other).import_file(io.BytesIO(b"".join(lines)))
    assert imported.agent_id == house.key.agent_id
    assert imported.messages == sum(json.loads(line)["type"] == "message" for line in lines)
    before = await house.conversations.list_conversations(house.key.agent_id)
    after = {one.key: one for one in await other.conversations.list_conversations(house.key.agent_id)}
    assert {one.key for one in before} == set(after)
    for one in before:
        same = after[one.key]
        assert same.in_context_message_ids == one.in_context_message_ids
        assert (same.summary, same.tags, same.hidden, same.created_at) == (
            one.summary,
            one.tags,
            one.hidden,
            one.created_at,
        )
        assert await shown(other, one.key) == await shown(house, one.key)
    other.key = house.key
    other.listen()
    await other.say("Go on", "m1")
    await other.settled()
    last = other.seen(seen.TurnFinished)[-1]
    assert isinstance(last, seen.TurnFinished)
    assert last.stop_reason is StopReason.END_TURN
    asked = other.models.requests[-1].messages
    assert "They looked at files." in str(asked)
    newest = asked[-1]
    assert isinstance(newest, UserMessage)
    assert "Machine:" in str(newest.parts), "what another machine was reminded of does not hold here"
    assert str(asked).count("Machine:") == 1


async def test_what_is_here_already_comes_in_under_new_ids(house: House) -> None:
    await talk(house)
    file = b"".join(await exported(house))
    again = await porter(house).import_file(io.BytesIO(file))
    assert again.agent_id != house.key.agent_id
    assert {key.conversation_id for key in again.conversations} & {"default"} == {"default"}
    original = await shown(house, house.key)
    assert await shown(house, ConversationKey(again.agent_id, house.key.conversation_id)) == original
    into = await porter(house, 78).import_file(io.BytesIO(file), into=house.key.agent_id)
    assert "default" not in {key.conversation_id for key in into.conversations}
    assert await shown(house, house.key) == original
    history = HistorySearch(house.folder / "search.db", house.database, house.clock)
    assert len((await history.search(Wanted("question 0", hidden=True))).found) == 6
    await history.aclose()


async def test_a_conversation_alone_goes_to_an_agent_that_is_named(house: House, other: House) -> None:
    await talk(house)
    file = b"".join([line async for line in porter(house).export_conversation(house.key)])
    with pytest.raises(ConversationError, match="name the agent"):
        await porter(other).import_file(io.BytesIO(file))
    with pytest.raises(ConversationError, match="not found"):
        await porter(other).import_file(io.BytesIO(file), into=AgentId("agent-none"))
    imported = await porter(other).import_file(io.BytesIO(file), into=other.key.agent_id)
    assert await shown(other, imported.conversations[0]) == await shown(house, house.key)


async def test_what_does_not_exist_cannot_be_exported(house: House) -> None:
    with pytest.raises(ConversationError, match="not found"):
        [line async for line in porter(house).export_agent(AgentId("agent-none"))]


async def test_a_file_that_is_refused_leaves_nothing_behind(house: House, other: House) -> None:
    await talk(house)
    lines = await exported(house)
    for file in (b"".join(lines[:-1]), b"".join([*lines[:5], *lines[6:]]), b"".join(lines)[:-20], b""):
        with pytest.raises(NotPortable, match="Line"):
            await porter(other).import_file(io.BytesIO(file))
    assert [agent.id for agent in await other.conversations.list_agents()] == [other.key.agent_id]


HEAD = {"type": "lodger_export", "version": 1, "exported_at": 0}
AGENT = {
    "type": "agent", "id": "agent-1", "name": "A", "description": "", "model": "x/y", "system": "", "tags": [],
    "hidden": False, "created_at": 1,
}  # fmt: skip
TALK = {
    "type": "conversation", "id": "conv-1", "summary": None, "tags": [], "model": None, "hidden": False,
    "archived_at": None, "created_at": 1, "last_message_at": None, "in_context": [],
}  # fmt: skip
SAID = {
    "type": "message", "id": "m1", "kind": "user", "content": {"content": "hi"}, "created_at": 1, "run_id": None,
    "tool_call_id": None, "otid": None,
}  # fmt: skip
RESULT = SAID | {
    "kind": "tool", "content": {"status": "success", "text": "x"}, "run_id": "r", "tool_call_id": "c", "id": "m2",
}  # fmt: skip


def sealed(*objects: dict[str, Any]) -> list[bytes]:
    """The lines with an end that fits them."""
    lines = [json.dumps(one).encode() + b"\n" for one in objects]
    writer = Writer()
    for line in lines:
        writer._digest.update(line)
    writer._conversations = sum(one.get("type") == "conversation" for one in objects)
    writer._messages = sum(one.get("type") == "message" for one in objects)
    return [*lines, writer.end()]


@pytest.mark.parametrize(
    ("objects", "words"),
    [
        ([AGENT, TALK], "begins with"),
        ([HEAD, HEAD], "begins with"),
        ([HEAD | {"version": 2}], "version 2"),
        ([HEAD, AGENT, AGENT], "one agent"),
        ([HEAD, TALK, AGENT], "one agent"),
        ([HEAD, AGENT | {"id": "agent-local-1"}], "usable `id`"),
        ([HEAD, AGENT | {"id": "../../etc"}], "usable `id`"),
        ([HEAD, AGENT | {"hidden": 1}], "`hidden`"),
        ([HEAD, AGENT | {"created_at": 10**12}], "no time"),
        ([HEAD, AGENT | {"created_at": True}], "`created_at`"),
        ([HEAD, AGENT | {"system": "x" * 200_001}], "`system`"),
        ([HEAD, AGENT | {"tags": [1]}], "`tag`"),
        ([HEAD, TALK, TALK], "second conversation"),
        ([HEAD, TALK | {"in_context": ["m9"]}], "does not have"),
        ([HEAD, TALK | {"in_context": ["m1", "m1"]}, SAID], "does not have"),
        ([HEAD, SAID], "before the first conversation"),
        ([HEAD, TALK, SAID, SAID], "second message"),
        ([HEAD, TALK, SAID | {"kind": "system"}], "`kind`"),
        ([HEAD, TALK, SAID | {"content": "hi"}], "`content`"),
        ([HEAD, TALK, SAID | {"content": {"content": 7}}], "neither a text"),
        (
            [HEAD, TALK, SAID | {"content": {"content": [{"type": "x", "y": json.loads("[" * 900 + "]" * 900)}]}}],
            "deep",
        ),
        ([HEAD, TALK, SAID | {"tool_call_id": "c"}], "no result"),
        ([HEAD, TALK, RESULT | {"run_id": None}], "without `run_id`"),
        ([HEAD, TALK, RESULT, RESULT | {"id": "m3"}], "second result"),
        ([HEAD, TALK, SAID | {"kind": "assistant", "content": {"text": "x", "tool_calls": [{}]}}], "tool call"),
        ([HEAD, {"type": "rule", "allow": "*"}], "not known"),
        ([HEAD, TALK, RESULT | {"content": {"text": 1}}], "`text`"),
    ],
)
def test_what_a_file_may_not_hold_is_refused_by_line(objects: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(NotPortable, match=words):
        read_portable(sealed(*objects))


@pytest.mark.parametrize(
    "line", [b"no json\n", b"[1]\n", b'{"type": NaN}\n', b'{"a": 1e999}\n', b"[" * 100_000, b"\xff\n"]
)
def test_a_line_that_is_no_object_is_refused(line: bytes) -> None:
    with pytest.raises(NotPortable, match="Line 2 is not"):
        read_portable([sealed(HEAD)[0], line])


async def test_an_agent_with_more_than_a_file_holds_is_not_exported_in_part(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await talk(house)
    conversations = len(await house.conversations.list_conversations(house.key.agent_id))
    monkeypatch.setattr("lodger_daemon.backends.local.porting.CONVERSATIONS_LIMIT", conversations)
    assert await exported(house)
    monkeypatch.setattr("lodger_daemon.backends.local.porting.CONVERSATIONS_LIMIT", conversations - 1)
    with pytest.raises(ConversationError, match="one by one"):
        await exported(house)


def test_a_line_or_a_file_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lodger_daemon.backends.core.portable_reading.LINE_LIMIT_BYTES", 1_000)
    with pytest.raises(NotPortable, match="longer than"):
        read_portable([sealed(HEAD)[0], b"x" * 1_001])
    monkeypatch.setattr("lodger_daemon.backends.core.portable_reading.FILE_LIMIT_BYTES", 2_000)
    filled = SAID | {"content": {"content": "x" * 500}}
    with pytest.raises(NotPortable, match="largest file"):
        read_portable(sealed(HEAD, TALK, *(filled | {"id": f"m{n}"} for n in range(5))))


def test_what_was_true_elsewhere_is_not_taken_over() -> None:
    reminders = [{"kind": "mode", "text": "unrestricted"}]
    said = SAID | {"content": {"content": "hi", "reminders": reminders, "shown": {"mode": "x"}, "extra": 1}}
    thought = {"text": "a", "reasoning": "b", "signature": "sealed", "calls_message_id": "z"}
    answered = SAID | {"id": "m2", "kind": "assistant", "content": thought}
    portable = read_portable(sealed(HEAD, TALK, said, answered))
    assert [message.content for message in portable.conversations[0].messages] == [
        {"content": "hi", "client_message_ids": []},
        {"text": "a", "reasoning": "b"},
    ]


async def test_no_damage_to_a_file_does_more_than_a_refusal(house: House, other: House) -> None:
    await talk(house)
    file = b"".join(await exported(house))
    agents = len(await other.conversations.list_agents())
    seed = 20_261_130
    chance = random.Random(seed)
    for number in range(300):
        damaged = bytearray(file)
        for _ in range(chance.randint(1, 4)):
            place = chance.randrange(len(damaged))
            match chance.randrange(3):
                case 0:
                    damaged[place] = chance.randrange(256)
                case 1:
                    del damaged[place : place + chance.randint(1, 2_000)]
                case _:
                    damaged[place:place] = bytes(chance.randrange(256) for _ in range(chance.randint(1, 8)))
        if bytes(damaged) == file:
            continue
        with pytest.raises(NotPortable):
            await porter(other, number).import_file(io.BytesIO(bytes(damaged)))
    assert len(await other.conversations.list_agents()) == agents


async def test_times_of_the_file_stay(house: House, other: House) -> None:
    await talk(house)
    house.clock.advance(1_000)
    file = b"".join(await exported(house))
    other.clock.advance(5_000)
    await porter(other).import_file(io.BytesIO(file))
    agent = await other.conversations.get_agent(house.key.agent_id)
    assert agent is not None
    assert agent.created_at < WallTime(other.clock.wall())
    original = await house.conversations.get_agent(house.key.agent_id)
    assert original is not None
    assert agent.created_at == original.created_at
