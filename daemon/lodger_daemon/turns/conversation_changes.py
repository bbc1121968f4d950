"""Conversations as things of their own: made, described, forked. No turn takes part in it."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from lodger_daemon.backends.core.elision import with_new_ids
from lodger_daemon.clock import WallTime
from lodger_daemon.identity import AgentId, ConversationId, ConversationKey, MessageId
from lodger_daemon.store import conversation_rows, message_rows
from lodger_daemon.store.message_rows import MessageKind, NewMessage, StoredMessage
from lodger_daemon.turns.contract import ConversationError, ConversationRecord
from lodger_daemon.turns.stored_messages import CALLS_PART, part_id
from lodger_tools.json_value import Json, JsonObject

SUMMARY_LIMIT_CHARS: Final = 2000
"""The line a conversation is listed under."""
TAGS_LIMIT: Final = 100
TAG_LIMIT_CHARS: Final = 200
_PAGE: Final = 500


def changed(record: ConversationRecord, changes: JsonObject, now: WallTime) -> ConversationRecord:
    """The record with what `changes` says of it; what a conversation does not have is passed over.

    Raises: ConversationError for a value that cannot be set.
    """
    for name, value in changes.items():
        match name, value:
            case "summary", None:
                record = replace(record, summary=None)
            case "summary", str() if len(value) <= SUMMARY_LIMIT_CHARS:
                record = replace(record, summary=value)
            case "tags", list():
                record = replace(record, tags=_tags(value))
            case "archived", bool():
                record = replace(record, archived_at=(record.archived_at or now) if value else None)
            case "hidden", bool():
                record = replace(record, hidden=value)
            case "model", str() | None:
                record = replace(record, model=value or None)
            case (("summary" | "tags" | "archived" | "hidden" | "model"), _):
                raise ConversationError(f"{name} cannot be set to that.")
            case _:
                pass
    return replace(record, updated_at=now)


def _tags(value: list[Json]) -> tuple[str, ...]:
    tags = tuple(tag for tag in value if isinstance(tag, str) and len(tag) <= TAG_LIMIT_CHARS)
    if len(tags) != len(value) or len(tags) > TAGS_LIMIT:
        raise ConversationError(f"tags must be at most {TAGS_LIMIT} texts of at most {TAG_LIMIT_CHARS} characters.")
    return tags


def create(connection: sqlite3.Connection, key: ConversationKey, changes: JsonObject, now: WallTime) -> None:
    """Raises: ConversationError."""
    record = ConversationRecord(key, now, now, None, None, (), None, None)
    conversation_rows.insert(connection, changed(record, changes, now))


def update(
    connection: sqlite3.Connection, key: ConversationKey, changes: JsonObject, now: WallTime
) -> ConversationRecord:
    """Raises: ConversationError."""
    record = required(connection, key)
    described = changed(record, changes, now)
    conversation_rows.describe(connection, described)
    return described


def required(connection: sqlite3.Connection, key: ConversationKey) -> ConversationRecord:
    """Raises: ConversationError."""
    record = conversation_rows.get(connection, key)
    if record is None:
        raise ConversationError(f"Conversation {key.conversation_id} not found")
    return record


def fork(
    connection: sqlite3.Connection,
    source: ConversationKey,
    fresh: ConversationKey,
    last: MessageId | None,
    hidden: bool,
    new_id: Callable[[], MessageId],
    now: WallTime,
) -> None:
    """Copy a transcript, to its end or up to `last`, with its folder, mode and model, into a new conversation.

    A result that is missing because a turn still runs is repaired in the request's view, as everywhere.
    Raises: ConversationError.
    """
    record = required(connection, source)
    end = None if last is None else _sequence_of(connection, source, last)
    forked = replace(record, key=fresh, created_at=now, updated_at=now, archived_at=None, hidden=hidden)
    conversation_rows.insert(connection, forked)
    state = conversation_rows.state(connection, source)
    conversation_rows.set_mode(connection, fresh, state.mode)
    if state.cwd is not None:
        conversation_rows.set_cwd(connection, fresh, state.cwd)
    copies: dict[MessageId, MessageId] = {}
    spoken: list[MessageId] = []
    for message in _transcript(connection, source, end):
        copy = copies[message.message_id] = new_id()
        message_rows.append(connection, fresh, _copy(message, copy, copies), in_context=False)
        if message.kind is not MessageKind.SUMMARY:
            spoken.append(copy)
    seen = [copies[old] for old in map(MessageId, record.in_context_message_ids) if old in copies]
    # Cut before its last summary, a conversation is what was said until then: that summary tells of later things.
    whole = len(seen) == len(record.in_context_message_ids)
    message_rows.replace_in_context(connection, fresh, seen if whole else spoken)


def _sequence_of(connection: sqlite3.Connection, source: ConversationKey, message_id: MessageId) -> int:
    for message in _transcript(connection, source, None):
        if message.message_id == message_id:
            return message.sequence
    raise ConversationError(f"Conversation {source.conversation_id} has no message {message_id}")


def _transcript(connection: sqlite3.Connection, source: ConversationKey, end: int | None) -> Iterator[StoredMessage]:
    after: MessageId | None = None
    while page := message_rows.page(connection, source, _PAGE, descending=False, after=after):
        for message in page:
            if end is not None and message.sequence > end:
                return
            yield message
        after = page[-1].message_id


def _copy(message: StoredMessage, message_id: MessageId, copies: Mapping[MessageId, MessageId]) -> NewMessage:
    content = with_new_ids(message.content, copies) if isinstance(message.content, dict) else message.content
    if isinstance(content, dict) and "calls_message_id" in content:
        content = {**content, "calls_message_id": part_id(message_id, CALLS_PART)}
    return NewMessage(
        message_id=message_id,
        kind=message.kind,
        content=content,
        created_at=message.created_at,
        otid=message.otid,
        run_id=message.run_id,
        tool_call_id=message.tool_call_id,
    )


def new_key(agent_id: AgentId, unique: str) -> ConversationKey:
    return ConversationKey(agent_id, ConversationId(f"conv-{unique}"))
