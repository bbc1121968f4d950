"""The events of one conversation: numbered, delivered in order, stored in batches."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeVar

from lodger_daemon.clock import Clock
from lodger_daemon.identity import ConversationKey
from lodger_daemon.store import event_rows
from lodger_daemon.store.database import Database
from lodger_daemon.store.errors import StoreError
from lodger_daemon.store.json_column import object_from_column, to_column
from lodger_daemon.turns import event_codec, records
from lodger_daemon.turns.contract import EventSink
from lodger_daemon.turns.core.events import (
    ConversationEvent,
    LoopStatusChanged,
    NumberedEvent,
    ToolOutput,
    TurnFinished,
)

T = TypeVar("T")

NUMBER_BLOCK: Final = 20_000
"""Numbers reserved at once; a restart skips what is left of a block. Several seconds of the fastest stream."""

LOW_WATER: Final = 10_000
ROWS_KEPT: Final = 50_000
"""Some days of hard work. Who was away longer reads the transcript."""

FORGET_EVERY_ROWS: Final = 1_000
"""So that forgetting is rare."""

FLUSH_DELAY_S: Final = 0.05
FLUSH_AT: Final = 512
"""Events held back at most before they are handed to the store."""

HANDED_LOOK: Final = 64
"""So many batches handed to the store, and it is asked which of them it has written."""


class EventLog:
    """Belongs to the event loop. `publish` never waits; numbers come from blocks that are committed before use."""

    def __init__(self, key: ConversationKey, database: Database, clock: Clock, number: int, reserved: int) -> None:
        """
        Args:
            number: the last number that may have been used.
            reserved: the last number of the committed block.
        """
        self._key = key
        self._database = database
        self._clock = clock
        self._number = number
        self._reserved = reserved
        self._rows_stored = 0
        """Since old ones were forgotten."""
        self._sinks: tuple[EventSink, ...] = ()
        self._held: list[NumberedEvent] = []
        self._handed: list[list[NumberedEvent]] = []
        """Batches that the store was given and may still have to write: a full disk keeps them waiting."""
        self._flush_timer: asyncio.TimerHandle | None = None
        self._reserving: asyncio.Task[None] | None = None

    @property
    def last_number(self) -> int:
        return self._number

    def publish(self, event: ConversationEvent) -> None:
        self._number += 1
        numbered = NumberedEvent(self._key, self._number, self._clock.wall(), event)
        for sink in self._sinks:
            sink(numbered)
        # A snapshot of running output is replaced by the next and by the result, so it is not worth keeping.
        if not isinstance(event, ToolOutput):
            self._hold(_for_store(numbered))
        if self._reserved - self._number < LOW_WATER and self._reserving is None:
            self._reserving = asyncio.get_running_loop().create_task(self._reserve())

    def subscribe(self, sink: EventSink) -> Callable[[], None]:
        self._sinks = (*self._sinks, sink)

        def end() -> None:
            self._sinks = tuple(other for other in self._sinks if other is not sink)

        return end

    async def after(self, number: int, limit: int) -> tuple[NumberedEvent, ...]:
        """Stored events with a greater number, oldest first, those still on their way into the store included."""
        rows = await self.write(lambda connection: event_rows.after(connection, self._key, number, limit))
        events = (event for row in rows for event in _decode(self._key, row) if event.number > number)
        return tuple(events)[:limit]

    async def resume_point(self, number: int) -> int:
        """From where a client that has seen events up to `number` can go on; another number when it has a gap."""
        if number > self._number:
            # Given by another database, such as one that a backup has replaced since.
            return self._number
        forgotten = await self._database.read(lambda connection: event_rows.forgotten(connection, self._key))
        return max(number, forgotten)

    def flush(self) -> None:
        held = self._take_held()
        if held:
            # Fragments share rows, so this counts more than there are.
            self._rows_stored += len(held)
            self._hand_over(held)

    def forget_old(self) -> None:
        """Drop stored events that no client will resume from any more."""
        if self._rows_stored >= FORGET_EVERY_ROWS:
            self._rows_stored = 0
            self._database.write_soon(lambda connection: event_rows.keep_newest(connection, self._key, ROWS_KEPT))

    async def store_held(self) -> None:
        """Return once everything published so far is stored."""
        await self.write(lambda _: None)

    async def aclose(self) -> None:
        self.flush()
        if self._reserving is not None:
            await asyncio.wait({self._reserving})

    async def newest(self, rows: int) -> tuple[NumberedEvent, ...]:
        """The events in so many of the newest stored rows, oldest first."""
        stored = await self._database.read(lambda connection: event_rows.newest(connection, self._key, rows))
        return tuple(event for row in stored for event in _decode(self._key, row))

    async def write(self, change: Callable[[sqlite3.Connection], T]) -> T:
        """Commit a change together with every event published so far.

        So what was shown of a step is kept no later than the step itself, and only what tells of the latest commit can
        be lost in a crash. Raises: StoreError; then no event is lost.
        """
        if held := self._take_held():
            # Known to whoever writes meanwhile, in case this write fails and theirs does not.
            self._handed.append(held)
        batches = tuple(self._handed)

        def write(connection: sqlite3.Connection) -> T:
            for batch in batches:
                _insert(connection, self._key, batch)
            return change(connection)

        try:
            result = await self._database.write(write)
        except BaseException:
            if held:
                self._database.write_soon(lambda connection: _insert(connection, self._key, held))
            raise
        self._handed = [batch for batch in self._handed if not any(batch is stored for stored in batches)]
        return result

    def _hand_over(self, batch: list[NumberedEvent]) -> None:
        if not batch:
            return
        if len(self._handed) >= HANDED_LOOK:
            self._forget_written()
        self._handed.append(batch)
        self._database.write_soon(lambda connection: _insert(connection, self._key, batch))

    def _forget_written(self) -> None:
        def waiting(connection: sqlite3.Connection) -> list[list[NumberedEvent]]:
            return [b for b in self._handed if not event_rows.was_stored(connection, self._key, b[-1].number)]

        with contextlib.suppress(StoreError):
            self._handed = self._database.read_now(waiting)

    def _hold(self, numbered: NumberedEvent) -> None:
        self._held.append(numbered)
        if len(self._held) >= FLUSH_AT:
            self.flush()
        else:
            self._flush_soon()

    def _flush_soon(self) -> None:
        if self._flush_timer is None:
            self._flush_timer = asyncio.get_running_loop().call_later(FLUSH_DELAY_S, self.flush)

    def _take_held(self) -> list[NumberedEvent]:
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        held, self._held = self._held, []
        return held

    async def _reserve(self) -> None:
        try:
            self._reserved = await self._database.write(
                lambda connection: event_rows.reserve_numbers(connection, self._key, NUMBER_BLOCK)
            )
        except StoreError:
            # Tried again with the next event; the events themselves are delivered all the same.
            pass
        finally:
            self._reserving = None


def reserve_first_block(connection: sqlite3.Connection, key: ConversationKey) -> int:
    """For opening a conversation: the last number of a fresh block, whose first is that less the block, plus one."""
    return event_rows.reserve_numbers(connection, key, NUMBER_BLOCK)


def _for_store(numbered: NumberedEvent) -> NumberedEvent:
    """A status is shown with the messages behind the last 32 runs; kept are those of its own run."""
    event = numbered.event
    if not isinstance(event, LoopStatusChanged) or not event.client_message_ids:
        return numbered
    own = {run: ids for run, ids in event.client_message_ids.items() if run == event.run_id}
    return replace(numbered, event=replace(event, client_message_ids=own or None))


def _insert(connection: sqlite3.Connection, key: ConversationKey, held: list[NumberedEvent]) -> None:
    # A batch that a full disk kept waiting may meanwhile have been written for a client that resumed.
    if not held or event_rows.was_stored(connection, key, held[-1].number):
        return
    # A burst that gave the loop no time to reserve the next block does it here.
    missing = held[-1].number - event_rows.reserved_up_to(connection, key)
    if missing > 0:
        event_rows.reserve_numbers(connection, key, missing + NUMBER_BLOCK)
    rows = [
        event_rows.EventRow(row.number, row.at, row.kind, to_column(row.payload)) for row in event_codec.encode(held)
    ]
    event_rows.insert(connection, key, rows)
    for item in held:
        if isinstance(item.event, TurnFinished):
            records.announced(connection, item.event.turn_id, item.at)


def _decode(key: ConversationKey, row: event_rows.EventRow) -> tuple[NumberedEvent, ...]:
    stored = event_codec.EventRow(row.number, row.at, row.kind, object_from_column(row.payload))
    return event_codec.decode(key, stored)
