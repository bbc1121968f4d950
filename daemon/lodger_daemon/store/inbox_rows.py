# ruff: noqa: S608 - only constants of this module are put into statements; values are always bound.
"""The inbox: one row per accepted submission, consumed in two phases, kept long after.

    accept(connection, key, item, disposition, now) -> ItemAccepted | ItemDuplicate | ItemRefused
    waiting(connection, key) -> tuple[InboxItem, ...]            accepted and parked, in order
    reserve(connection, key, item_numbers, turn_id)              accepted → reserved; raises StateConflict
    admit(connection, turn_id, run_id) -> tuple[InboxItem, ...]  reserved → admitted: all that this turn has reserved
    release(connection, turn_id) -> int                          reserved → accepted: back to the head, in their order
    answer(connection, turn_id, outcome, now) -> int             admitted → answered
    cancel(connection, key, item_number, cause, now) -> InboxItem | None        accepted, parked → cancelled
    cancel_from(connection, senders, now) -> tuple[InboxItem, ...]              all that waits of these devices
    begun_from(connection, senders) -> tuple[InboxItem, ...]     reserved and admitted of these devices
    park(connection, key) -> int                                 accepted → parked (messages only)
    resume(connection, key) -> int                               parked → accepted
    get(connection, key, client_message_id) -> InboxItem | None
    of_turn(connection, turn_id) -> tuple[InboxItem, ...]
    reserved(connection) -> tuple[InboxItem, ...]                what a restart releases
    forget_settled(connection, key, kept)                        all but the newest of what was answered or cancelled
    keys_with_work(connection) -> tuple[ConversationKey, ...]    conversations whose queue can move

The turn's row exists before `reserve`, the run's row before `admit`; each pair may share one transaction. The schema
refuses every other step, and deleting what is not settled.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from lodger_daemon.clock import WallTime
from lodger_daemon.identity import AgentId, ClientMessageId, ConversationId, ConversationKey, RunId, TurnId
from lodger_daemon.inbox.core.items import (
    CancelCause,
    Disposition,
    InboxItem,
    ItemKind,
    ItemStatus,
    NewItem,
    TurnSettings,
)
from lodger_daemon.inbox.core.rules import Admit, NoRoom, room_for
from lodger_daemon.store import conversation_rows
from lodger_daemon.store.errors import StateConflict
from lodger_daemon.store.json_column import from_column, object_from_column, strings_from_column, to_column
from lodger_daemon.turns.contract import InputMessage

_LIVE: Final = "i.status IN ('accepted', 'parked', 'reserved', 'admitted')"
"""Word for word the condition of the index `waiting_inbox`; SQLite uses the index only then."""

_SELECT: Final = (
    "SELECT v.agent_id, v.conversation_id, i.item_number, i.client_message_id, i.kind, i.source, i.messages, "
    "i.can_answer_questions, i.settings, i.tool_allowlist, i.delivery, i.connection_group, i.sender, i.disposition, "
    "i.status, i.accepted_at, i.turn_id, i.run_id, i.outcome "
    "FROM inbox i JOIN conversations v ON v.number = i.conversation"
)


@dataclass(frozen=True, slots=True)
class ItemAccepted:
    item: InboxItem
    dropped: tuple[InboxItem, ...] = ()
    """Notifications or scheduled prompts that made room."""


@dataclass(frozen=True, slots=True)
class ItemDuplicate:
    """This client message id was accepted before; nothing was added."""

    item: InboxItem


@dataclass(frozen=True, slots=True)
class ItemRefused:
    """Nothing was stored."""

    reason: str


AcceptResult: TypeAlias = ItemAccepted | ItemDuplicate | ItemRefused


def accept(
    connection: sqlite3.Connection, key: ConversationKey, item: NewItem, disposition: Disposition, now: WallTime
) -> AcceptResult:
    """Makes the conversation if it is new. `disposition` is what the client will be told, now and when it resends.

    A person's new message puts parked ones back in line, before itself.
    """
    if not item.submission.messages:
        return ItemRefused("There is no message in it.")
    conversation = conversation_rows.ensure(connection, key, now)
    first = item.submission.messages[0]
    known = get(connection, key, first.client_message_id)
    if known is not None:
        return ItemDuplicate(known)
    room = room_for(item.kind, _waiting_counts(connection, conversation))
    if isinstance(room, NoRoom):
        return ItemRefused(room.reason)
    dropped = _make_room(connection, key, conversation, room, now)
    if item.kind is ItemKind.MESSAGE:
        resume(connection, key)
    _insert(connection, conversation, item, disposition, now)
    stored = get(connection, key, first.client_message_id)
    assert stored is not None
    return ItemAccepted(stored, dropped)


def waiting(connection: sqlite3.Connection, key: ConversationKey) -> tuple[InboxItem, ...]:
    """Empty for an unknown conversation."""
    rows = connection.execute(
        f"{_SELECT} WHERE v.agent_id = ? AND v.conversation_id = ? AND {_LIVE} AND i.status IN ('accepted', 'parked') "
        "ORDER BY i.item_number",
        (key.agent_id, key.conversation_id),
    )
    return tuple(_from_row(row) for row in rows)


def reserve(connection: sqlite3.Connection, key: ConversationKey, item_numbers: Sequence[int], turn_id: TurnId) -> None:
    """Raises: StateConflict when one of them no longer waits; then none is reserved (undo the transaction)."""
    conversation = conversation_rows.number_of(connection, key)
    for item_number in item_numbers:
        cursor = connection.execute(
            "UPDATE inbox SET status = 'reserved', turn_id = ? "
            "WHERE conversation = ? AND item_number = ? AND status = 'accepted'",
            (turn_id, conversation, item_number),
        )
        if cursor.rowcount == 0:
            raise StateConflict(f"item q-{item_number} of {key} no longer waits")


def admit(connection: sqlite3.Connection, turn_id: TurnId, run_id: RunId) -> tuple[InboxItem, ...]:
    """The items that became part of the transcript, in order; empty when the turn had none reserved."""
    taken = tuple(item for item in of_turn(connection, turn_id) if item.status is ItemStatus.RESERVED)
    connection.execute(
        "UPDATE inbox SET status = 'admitted', run_id = ? WHERE turn_id = ? AND status = 'reserved'", (run_id, turn_id)
    )
    return taken


def release(connection: sqlite3.Connection, turn_id: TurnId) -> int:
    """Return what this turn had reserved and not admitted to the head of the line."""
    return connection.execute(
        "UPDATE inbox SET status = 'accepted', turn_id = NULL WHERE turn_id = ? AND status = 'reserved'", (turn_id,)
    ).rowcount


def answer(connection: sqlite3.Connection, turn_id: TurnId, outcome: str, now: WallTime) -> int:
    """Done by `turn_rows.finish`. What the turn had reserved without admitting stays for `release`."""
    return connection.execute(
        "UPDATE inbox SET status = 'answered', outcome = ?, settled_at = ? WHERE turn_id = ? AND status = 'admitted'",
        (outcome, now, turn_id),
    ).rowcount


def cancel(
    connection: sqlite3.Connection, key: ConversationKey, item_number: int, cause: CancelCause, now: WallTime
) -> InboxItem | None:
    """The item as it waited; None when it does not wait (any more)."""
    for item in waiting(connection, key):
        if item.item_number == item_number:
            connection.execute(
                "UPDATE inbox SET status = 'cancelled', outcome = ?, settled_at = ? "
                "WHERE conversation = ? AND item_number = ?",
                (cause, now, conversation_rows.number_of(connection, key), item_number),
            )
            return item
    return None


def cancel_from(connection: sqlite3.Connection, senders: Sequence[str], now: WallTime) -> tuple[InboxItem, ...]:
    """Whatever waits of these devices, in any conversation."""
    rows = connection.execute(
        f"{_SELECT} WHERE {_LIVE} AND i.status IN ('accepted', 'parked') "
        "AND i.sender IN (SELECT value FROM json_each(?)) ORDER BY +i.number",
        (to_column(list(senders)),),
    )
    gone = tuple(_from_row(row) for row in rows)
    for item in gone:
        cancel(connection, item.conversation, item.item_number, CancelCause.REVOKED, now)
    return gone


def begun_from(connection: sqlite3.Connection, senders: Sequence[str]) -> tuple[InboxItem, ...]:
    """What turns have taken of these devices' and not answered yet."""
    rows = connection.execute(
        f"{_SELECT} WHERE {_LIVE} AND i.status IN ('reserved', 'admitted') "
        "AND i.sender IN (SELECT value FROM json_each(?)) ORDER BY +i.number",
        (to_column(list(senders)),),
    )
    return tuple(_from_row(row) for row in rows)


def park(connection: sqlite3.Connection, key: ConversationKey) -> int:
    """Take waiting messages out of line; notifications and scheduled prompts stay."""
    return connection.execute(
        f"UPDATE inbox AS i SET status = 'parked' WHERE i.conversation = ? AND {_LIVE} AND i.status = 'accepted' "
        "AND i.kind = 'message'",
        (conversation_rows.number_of(connection, key),),
    ).rowcount


def resume(connection: sqlite3.Connection, key: ConversationKey) -> int:
    return connection.execute(
        f"UPDATE inbox AS i SET status = 'accepted' WHERE i.conversation = ? AND {_LIVE} AND i.status = 'parked'",
        (conversation_rows.number_of(connection, key),),
    ).rowcount


def get(connection: sqlite3.Connection, key: ConversationKey, client_message_id: ClientMessageId) -> InboxItem | None:
    row = connection.execute(
        f"{_SELECT} WHERE v.agent_id = ? AND v.conversation_id = ? AND i.client_message_id = ?",
        (key.agent_id, key.conversation_id, client_message_id),
    ).fetchone()
    return _from_row(row) if row else None


def of_turn(connection: sqlite3.Connection, turn_id: TurnId) -> tuple[InboxItem, ...]:
    """What this turn has reserved, admitted or answered, in order."""
    rows = connection.execute(f"{_SELECT} WHERE i.turn_id = ? ORDER BY i.item_number", (turn_id,))
    return tuple(_from_row(row) for row in rows)


def forget_settled(connection: sqlite3.Connection, key: ConversationKey, kept: int) -> None:
    """A resent message is known as long as its row is among the `kept` newest; what it said stays in the transcript."""
    conversation = conversation_rows.number_of(connection, key)
    connection.execute(
        "DELETE FROM inbox WHERE conversation = ?1 AND status IN ('answered', 'cancelled') "
        "AND item_number <= (SELECT MAX(item_number) FROM inbox WHERE conversation = ?1) - ?2",
        (conversation, kept),
    )


def reserved(connection: sqlite3.Connection) -> tuple[InboxItem, ...]:
    """Of all conversations."""
    # The plus keeps SQLite from walking the whole past in row order instead of the small index of live items.
    rows = connection.execute(f"{_SELECT} WHERE {_LIVE} AND i.status = 'reserved' ORDER BY +i.number")
    return tuple(_from_row(row) for row in rows)


def keys_with_work(connection: sqlite3.Connection) -> tuple[ConversationKey, ...]:
    """Conversations with an accepted item, the one that has waited longest first."""
    rows = connection.execute(
        "SELECT v.agent_id, v.conversation_id FROM inbox i JOIN conversations v ON v.number = i.conversation "
        f"WHERE {_LIVE} AND i.status = 'accepted' GROUP BY v.number ORDER BY MIN(i.number)"
    )
    return tuple(ConversationKey(AgentId(agent), ConversationId(conversation)) for agent, conversation in rows)


def _waiting_counts(connection: sqlite3.Connection, conversation: int) -> dict[ItemKind, int]:
    rows = connection.execute(
        f"SELECT i.kind, COUNT(*) FROM inbox i WHERE i.conversation = ? AND {_LIVE} "
        "AND i.status IN ('accepted', 'parked') GROUP BY i.kind",
        (conversation,),
    )
    return {ItemKind(kind): count for kind, count in rows}


def _make_room(
    connection: sqlite3.Connection, key: ConversationKey, conversation: int, room: Admit, now: WallTime
) -> tuple[InboxItem, ...]:
    if room.drop is None:
        return ()
    oldest = connection.execute(
        f"SELECT MIN(i.item_number) FROM inbox i WHERE i.conversation = ? AND {_LIVE} "
        "AND i.status IN ('accepted', 'parked') AND i.kind = ?",
        (conversation, room.drop),
    ).fetchone()[0]
    dropped = cancel(connection, key, oldest, CancelCause.DROPPED, now)
    return (dropped,) if dropped is not None else ()


def _insert(
    connection: sqlite3.Connection, conversation: int, item: NewItem, disposition: Disposition, now: WallTime
) -> None:
    submission = item.submission
    messages = [[message.client_message_id, message.content, message.otid] for message in submission.messages]
    connection.execute(
        "INSERT INTO inbox (conversation, item_number, client_message_id, kind, source, messages, "
        "can_answer_questions, settings, tool_allowlist, delivery, connection_group, sender, disposition, status, "
        "accepted_at) "
        "VALUES (?1, (SELECT COALESCE(MAX(item_number), 0) + 1 FROM inbox WHERE conversation = ?1), "
        "?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, 'accepted', ?13)",
        (
            conversation,
            submission.messages[0].client_message_id,
            item.kind,
            item.source,
            to_column(messages),
            submission.can_answer_questions,
            to_column(
                {
                    "ask_together": submission.ask_together,
                    "max_steps": submission.max_steps,
                    "offer_questions": submission.offer_questions,
                }
            ),
            to_column(submission.tool_allowlist) if submission.tool_allowlist is not None else None,
            submission.delivery,
            submission.connection_group,
            submission.sender,
            disposition,
            now,
        ),
    )


def _from_row(row: tuple[Any, ...]) -> InboxItem:
    (agent_id, conversation_id, number, client_message_id, kind, source, messages, can_answer, more, allowlist,
     delivery, group, sender, disposition, status, accepted_at, turn_id, run_id, outcome) = row  # fmt: skip
    wished = object_from_column(more)
    max_steps = wished.get("max_steps")
    return InboxItem(
        conversation=ConversationKey(AgentId(agent_id), ConversationId(conversation_id)),
        item_number=number,
        client_message_id=client_message_id,
        kind=ItemKind(kind),
        source=source,
        messages=_messages(messages),
        settings=TurnSettings(
            can_answer_questions=bool(can_answer),
            ask_together=wished.get("ask_together") is True,
            offer_questions=wished.get("offer_questions") is not False,
            max_steps=max_steps if isinstance(max_steps, int) else None,
            tool_allowlist=strings_from_column(allowlist) if allowlist is not None else None,
        ),
        delivery=delivery,
        connection_group=group,
        sender=sender,
        disposition=disposition,
        status=ItemStatus(status),
        accepted_at=accepted_at,
        turn_id=turn_id,
        run_id=run_id,
        outcome=outcome,
    )


def _messages(column: str) -> tuple[InputMessage, ...]:
    stored = cast("list[Any]", from_column(column))
    return tuple(InputMessage(ClientMessageId(first), content, otid) for first, content, otid in stored)
