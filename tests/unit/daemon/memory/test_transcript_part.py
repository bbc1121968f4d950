"""What a writer is given to read: whole messages in order, within limits, and never one that is passed over."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lodger_daemon.clock import WallTime
from lodger_daemon.identity import AgentId, ConversationId, ConversationKey, MessageId
from lodger_daemon.memory import transcript_part
from lodger_daemon.memory.transcript_part import part_after
from lodger_daemon.store import conversation_rows, message_rows
from lodger_daemon.store.database import Database
from lodger_daemon.store.message_rows import MessageKind, NewMessage
from support.store_rows import NOW, open_database

ADA, EVE = AgentId("agent-ada"), AgentId("agent-eve")


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = open_database(tmp_path)
    yield opened
    await opened.aclose()


async def say(database: Database, agent: AgentId, conversation: str, *texts: str) -> None:
    key = ConversationKey(agent, ConversationId(conversation))

    def write(connection) -> None:
        conversation_rows.ensure(connection, key, NOW)
        for number, text in enumerate(texts):
            name = MessageId(f"message-{agent}-{conversation}-{number}")
            message_rows.append(connection, key, NewMessage(name, MessageKind.USER, {"text": text}, WallTime(1.5)))

    await database.write(write)


async def part(database: Database, after: int) -> tuple[int, list[dict]]:
    found = await database.read(lambda connection: part_after(connection, ADA, after))
    assert found is not None
    assert found[0].after == after
    return found[0].through, [json.loads(line) for line in found[1].splitlines()]


async def test_all_conversations_of_the_agent_and_nobody_elses(database: Database) -> None:
    assert await database.read(lambda connection: part_after(connection, ADA, 0)) is None
    await say(database, ADA, "default", "one")
    await say(database, EVE, "default", "hers")
    await say(database, ADA, "conv-2", "two\nlines \udc80")
    through, lines = await part(database, 0)
    assert [(line["conversation_id"], line["kind"], line["content"]["text"]) for line in lines] == [
        ("default", "user", "one"),
        ("conv-2", "user", "two\nlines \udc80"),
    ]
    assert await database.read(lambda connection: part_after(connection, ADA, through)) is None


async def test_a_long_transcript_comes_in_parts_without_a_gap(database: Database) -> None:
    long = 2 * transcript_part._MESSAGE_CHARS
    await say(database, ADA, "default", *(f"{number} {'x' * long}" for number in range(50)))
    seen, after = [], 0
    while await database.read(lambda connection, after=after: part_after(connection, ADA, after)) is not None:
        after, lines = await part(database, after)
        assert sum(len(json.dumps(line)) + 1 for line in lines) <= transcript_part.MOST_CHARS
        assert all(line["cut"] for line in lines)
        seen += [line["number"] for line in lines]
    assert seen == sorted(set(seen))
    assert len(seen) == 50
