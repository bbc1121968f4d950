"""Takes agents and conversations out of this machine's database as files, and files into it."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import IO, Final

from lodger_daemon.backends.core.portable import (
    CONVERSATIONS_LIMIT,
    Portable,
    PortableAgent,
    PortableConversation,
    Writer,
)
from lodger_daemon.backends.core.portable_reading import LINE_LIMIT_BYTES, read_portable
from lodger_daemon.backends.core.transcript import TranscriptMessage
from lodger_daemon.clock import Clock, WallTime
from lodger_daemon.identity import DEFAULT_CONVERSATION, AgentId, ConversationId, ConversationKey, MessageId
from lodger_daemon.randomness import Rng
from lodger_daemon.store import agent_rows, conversation_rows, message_rows
from lodger_daemon.store.database import Database
from lodger_daemon.turns.contract import AgentRecord, ConversationError, ConversationRecord
from lodger_daemon.turns.records import append, from_row

PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class Imported:
    """What is here now. Ids are those of the file where they were free."""

    agent_id: AgentId
    conversations: tuple[ConversationKey, ...]
    messages: int


class Porter:
    """Event loop only; files are read and checked in a thread."""

    def __init__(self, database: Database, clock: Clock, rng: Rng) -> None:
        self._database = database
        self._clock = clock
        self._rng = rng

    async def export_agent(self, agent_id: AgentId) -> AsyncIterator[bytes]:
        """Line by line: the agent and all its conversations, also hidden ones. Its memory is in git.

        Raises: ConversationError when there is no such agent, or when it has more conversations than a file holds.
        """
        agent = await self._database.read(partial(agent_rows.get, agent_id=agent_id))
        if agent is None:
            raise ConversationError(f"Agent {agent_id} not found")
        limit = CONVERSATIONS_LIMIT + 1
        found = await self._database.read(partial(conversation_rows.newest, agent_id=agent_id, limit=limit))
        if len(found) > CONVERSATIONS_LIMIT:
            raise ConversationError(
                f"This agent has more than {CONVERSATIONS_LIMIT} conversations, and a file holds no more. Export the "
                "conversations one by one."
            )
        writer = Writer()
        yield writer.head(self._clock.wall())
        yield writer.agent(_portable_agent(agent))
        for record in found:
            async for line in self._conversation(writer, record.key):
                yield line
        yield writer.end()

    async def export_conversation(self, key: ConversationKey) -> AsyncIterator[bytes]:
        """Raises: ConversationError when there is no such conversation."""
        writer = Writer()
        yield writer.head(self._clock.wall())
        async for line in self._conversation(writer, key):
            yield line
        yield writer.end()

    async def import_file(self, file: IO[bytes], into: AgentId | None = None) -> Imported:
        """All of a file or nothing, in one commit.

        Args:
            into: the agent of this machine that gets the conversations; needed for a file without an agent.
        Raises: NotPortable, ConversationError, StoreError.
        """
        portable = await asyncio.to_thread(read_portable, _lines(file))
        if into is None and portable.agent is None:
            raise ConversationError("This file holds no agent: name the agent that gets its conversations.")
        fresh_ids = _FreshIds(self._rng)
        now = self._clock.wall()
        return await self._database.write(lambda connection: _store(connection, portable, into, fresh_ids, now))

    async def _conversation(self, writer: Writer, key: ConversationKey) -> AsyncIterator[bytes]:
        record = await self._database.read(partial(conversation_rows.get, key=key))
        if record is None:
            raise ConversationError(f"Conversation {key.conversation_id} not found")
        newest = await self._database.read(partial(message_rows.page, key=key, limit=1))
        yield writer.conversation(_portable_conversation(record))
        last = newest[0].sequence if newest else 0
        after: MessageId | None = None
        while page := await self._database.read(
            partial(message_rows.page, key=key, limit=PAGE, descending=False, after=after)
        ):
            # What is said from now on belongs to another export: the list of what the model sees is from before.
            for row in page:
                if row.sequence <= last:
                    yield writer.message(from_row(row))
            after = page[-1].message_id
            if page[-1].sequence >= last:
                return


class _FreshIds:
    def __init__(self, rng: Rng) -> None:
        self._rng = rng

    def agent(self) -> AgentId:
        return AgentId(f"agent-{self._rng.uuid()}")

    def conversation(self) -> ConversationId:
        return ConversationId(f"conv-{self._rng.uuid()}")

    def message(self) -> MessageId:
        return MessageId(f"message-{self._rng.uuid()}")


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    while line := file.readline(LINE_LIMIT_BYTES + 1):
        yield line


def _store(
    connection: sqlite3.Connection, portable: Portable, into: AgentId | None, fresh: _FreshIds, now: WallTime
) -> Imported:
    """Raises: ConversationError."""
    agent_id = into if into is not None else _store_agent(connection, portable.agent, fresh, now)
    if agent_rows.get(connection, agent_id) is None:
        raise ConversationError(f"Agent {agent_id} not found")
    keys = tuple(
        _store_conversation(connection, agent_id, conversation, fresh, now) for conversation in portable.conversations
    )
    return Imported(agent_id, keys, sum(len(conversation.messages) for conversation in portable.conversations))


def _store_agent(
    connection: sqlite3.Connection, agent: PortableAgent | None, fresh: _FreshIds, now: WallTime
) -> AgentId:
    assert agent is not None
    agent_id = AgentId(agent.id)
    # The id of a deleted agent is not free: what was said with it is still here.
    if agent_rows.get(connection, agent_id) is not None or agent_rows.deleted(connection, agent_id):
        agent_id = fresh.agent()
    agent_rows.insert(
        connection,
        AgentRecord(
            id=agent_id,
            name=agent.name,
            description=agent.description,
            model=agent.model,
            system=agent.system,
            tags=agent.tags,
            created_at=agent.created_at,
            updated_at=now,
            hidden=agent.hidden,
        ),
    )
    return agent_id


def _store_conversation(
    connection: sqlite3.Connection,
    agent_id: AgentId,
    conversation: PortableConversation,
    fresh: _FreshIds,
    now: WallTime,
) -> ConversationKey:
    key = ConversationKey(agent_id, _free_id(connection, agent_id, conversation, fresh))
    conversation_rows.insert(
        connection,
        ConversationRecord(
            key=key,
            created_at=conversation.created_at,
            updated_at=now,
            last_message_at=conversation.last_message_at,
            summary=conversation.summary,
            tags=conversation.tags,
            archived_at=conversation.archived_at,
            model=conversation.model,
            hidden=conversation.hidden,
        ),
    )
    ids = _message_ids(connection, conversation.messages, fresh)
    for message in conversation.messages:
        append(connection, key, replace(message, message_id=ids[message.message_id]), None)
    message_rows.replace_in_context(connection, key, [ids[one] for one in conversation.in_context])
    return key


def _free_id(
    connection: sqlite3.Connection, agent_id: AgentId, conversation: PortableConversation, fresh: _FreshIds
) -> ConversationId:
    """`default` is free once per agent, any other id once per machine."""
    wanted = ConversationId(conversation.id)
    if wanted == DEFAULT_CONVERSATION:
        taken = conversation_rows.number_of(connection, ConversationKey(agent_id, wanted)) is not None
    else:
        taken = conversation_rows.is_taken(connection, wanted)
    return fresh.conversation() if taken else wanted


def _message_ids(
    connection: sqlite3.Connection, messages: Iterable[TranscriptMessage], fresh: _FreshIds
) -> dict[MessageId, MessageId]:
    """All kept, or all new when one is taken: then this conversation has been here before."""
    kept = [message.message_id for message in messages]
    taken = any(message_rows.get(connection, message_id) is not None for message_id in kept)
    return {message_id: fresh.message() if taken else message_id for message_id in kept}


def _portable_agent(agent: AgentRecord) -> PortableAgent:
    return PortableAgent(
        id=agent.id,
        name=agent.name,
        description=agent.description,
        model=agent.model,
        system=agent.system,
        tags=agent.tags,
        hidden=agent.hidden,
        created_at=agent.created_at,
    )


def _portable_conversation(record: ConversationRecord) -> PortableConversation:
    return PortableConversation(
        id=record.key.conversation_id,
        summary=record.summary,
        tags=record.tags,
        model=record.model,
        hidden=record.hidden,
        archived_at=record.archived_at,
        created_at=record.created_at,
        last_message_at=record.last_message_at,
        in_context=tuple(MessageId(one) for one in record.in_context_message_ids),
    )
