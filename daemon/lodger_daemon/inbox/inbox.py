"""The inbox of all conversations of this daemon: what was accepted is on disk, and is answered once.

    inbox = Inbox(database, clock)
    result = await inbox.accept(key, NewItem(submission), "started")     # ItemAccepted | ItemDuplicate | ItemRefused
    batch = await inbox.reserve(key, turn_id, Moment.TURN_START, prepare=start_turn)
    await inbox.admit(turn_id, run_id)       # or `inbox_rows.admit` in the transaction that appends the message
    await inbox.release(turn_id)             # the request was not admitted: back to the head

The end of the turn (`turn_rows.finish`) answers what it admitted. There is no state in memory: every answer comes from
the database, so nothing can be out of step after a crash.
"""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass

from lodger_daemon.clock import Clock
from lodger_daemon.identity import ClientMessageId, ConversationKey, QueueItemId, RunId, TurnId
from lodger_daemon.inbox.core.items import (
    CancelCause,
    Disposition,
    InboxItem,
    ItemKind,
    NewItem,
    TurnSettings,
    item_number,
)
from lodger_daemon.inbox.core.rules import Moment, batch_content, batch_settings, next_batch
from lodger_daemon.store import inbox_rows
from lodger_daemon.store.database import Database
from lodger_daemon.store.inbox_rows import AcceptResult, ItemAccepted
from lodger_daemon.turns.core.events import QueuedItem
from lodger_tools.json_value import Json


@dataclass(frozen=True, slots=True)
class Batch:
    """Items that one turn takes together, as one user message."""

    items: tuple[InboxItem, ...]

    @property
    def settings(self) -> TurnSettings:
        return batch_settings(self.items)

    @property
    def content(self) -> list[Json]:
        return batch_content(self.items)

    @property
    def client_message_ids(self) -> tuple[ClientMessageId, ...]:
        return tuple(item.client_message_id for item in self.items)


class Inbox:
    """Safe to call from any task of the event loop. Raises the store's errors, such as StoreFull."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def accept(self, key: ConversationKey, item: NewItem, disposition: Disposition) -> AcceptResult:
        """Store one submission; on `ItemAccepted` it survives any crash.

        A person's new message also puts parked ones back in line, before itself.
        """
        now = self._clock.wall()

        def write(connection: sqlite3.Connection) -> AcceptResult:
            result = inbox_rows.accept(connection, key, item, disposition, now)
            if isinstance(result, ItemAccepted) and item.kind is ItemKind.MESSAGE:
                inbox_rows.resume(connection, key)
            return result

        return await self._database.write(write)

    def queue(self, key: ConversationKey) -> tuple[QueuedItem, ...]:
        """What waits, in order. At once; a few indexed rows."""
        return tuple(item.as_queued() for item in self.waiting(key))

    def waiting(self, key: ConversationKey) -> tuple[InboxItem, ...]:
        return self._database.read_now(lambda connection: inbox_rows.waiting(connection, key))

    def has_work(self, key: ConversationKey, moment: Moment, running: TurnSettings | None = None) -> bool:
        """Whether `reserve` would take something now."""
        return bool(next_batch(self.waiting(key), moment, running))

    async def reserve(
        self,
        key: ConversationKey,
        turn_id: TurnId,
        moment: Moment,
        running: TurnSettings | None = None,
        prepare: Callable[[sqlite3.Connection], object] | None = None,
    ) -> Batch | None:
        """Take the next batch for this turn; None, and nothing changed, when nothing waits for this moment.

        Args:
            running: the settings of the turn that runs, at a tool boundary.
            prepare: runs first in the same transaction when there is a batch, to store the turn's row.
        """

        def write(connection: sqlite3.Connection) -> Batch | None:
            items = next_batch(inbox_rows.waiting(connection, key), moment, running)
            if not items:
                return None
            if prepare is not None:
                prepare(connection)
            inbox_rows.reserve(connection, key, [item.item_number for item in items], turn_id)
            return Batch(items)

        return await self._database.write(write)

    async def admit(self, turn_id: TurnId, run_id: RunId) -> tuple[InboxItem, ...]:
        """The model's provider took the request: what the turn had reserved is now part of the conversation."""
        return await self._database.write(lambda connection: inbox_rows.admit(connection, turn_id, run_id))

    async def release(self, turn_id: TurnId) -> int:
        """The request was not admitted: back to the head, in order. How many."""
        return await self._database.write(lambda connection: inbox_rows.release(connection, turn_id))

    async def remove(self, key: ConversationKey, item_id: QueueItemId) -> InboxItem | None:
        """Cancel one waiting item for a person; None when it is not waiting (any more)."""
        number = item_number(item_id)
        if number is None:
            return None
        now = self._clock.wall()
        return await self._database.write(
            lambda connection: inbox_rows.cancel(connection, key, number, CancelCause.REMOVED, now)
        )

    async def park_all(self, key: ConversationKey) -> int:
        """After an abort: waiting messages stay where they are until `resume` or a new message. How many."""
        return await self._database.write(lambda connection: inbox_rows.park(connection, key))

    async def resume(self, key: ConversationKey) -> int:
        """How many went back in line."""
        return await self._database.write(lambda connection: inbox_rows.resume(connection, key))

    async def release_all(self) -> tuple[InboxItem, ...]:
        """At start: what an earlier daemon had reserved and never admitted goes back to the head."""

        def write(connection: sqlite3.Connection) -> tuple[InboxItem, ...]:
            items = inbox_rows.reserved(connection)
            for turn_id in {item.turn_id for item in items if item.turn_id is not None}:
                inbox_rows.release(connection, turn_id)
            return items

        return await self._database.write(write)

    async def conversations_with_work(self) -> tuple[ConversationKey, ...]:
        """At start: whose queue can move, the longest wait first."""
        return await self._database.read(inbox_rows.keys_with_work)
