"""Search over everything that was ever said here, whatever compaction has hidden from the model since.

The index follows the database: what is missing is added before each search and now and then between. It is nobody's
only copy and no commit waits for it; lost or damaged, it is made anew.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from lodger_daemon.backends.core.search_query import Span, indexed_text, joined, match_of
from lodger_daemon.backends.core.transcript import MessageKind
from lodger_daemon.clock import Clock
from lodger_daemon.identity import AgentId, ConversationId, ConversationKey
from lodger_daemon.store import agent_rows, conversation_rows, message_rows
from lodger_daemon.store import search_index as indexes
from lodger_daemon.store.database import Database
from lodger_daemon.store.errors import StoreDamaged, StoreError
from lodger_daemon.store.faults import translated
from lodger_daemon.store.message_rows import NumberedMessage
from lodger_daemon.store.search_index import Document, Filters, Found, SearchIndex
from lodger_daemon.turns.records import from_row

T = TypeVar("T")

logger = logging.getLogger(__name__)

EVER: Final = Span()
BATCH: Final = 500
"""Messages of one transaction of the index, and of one read of the database."""
EVERY_S: Final = 600.0
"""How often the index follows by itself, so that no search has much to catch up with."""
PAGE_LIMIT: Final = 100
_ROUNDS: Final = 20
"""Reads for one page when most of what is found lies in hidden conversations; then the page is short and goes on."""
SPOKEN: Final = (MessageKind.USER, MessageKind.ASSISTANT, MessageKind.TOOL)
"""Summaries stand for messages that are found themselves."""


@dataclass(frozen=True, slots=True)
class Wanted:
    query: str
    agent_id: AgentId | None = None
    conversation_id: ConversationId | None = None
    kinds: tuple[MessageKind, ...] = SPOKEN
    span: Span = EVER
    hidden: bool = False
    """Whether hidden conversations are looked through too."""
    limit: int = 20
    before: int | None = None
    """`next_before` of the page before."""


@dataclass(frozen=True, slots=True)
class Page:
    """Newest first."""

    found: tuple[Found, ...]
    next_before: int | None
    """None when there is no more."""


class HistorySearch:
    """Event loop only; the work is done in a thread of its own."""

    def __init__(self, path: Path, database: Database, clock: Clock) -> None:
        self._path = path
        self._database = database
        self._clock = clock
        self._index: SearchIndex | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lodger-search")
        self._following = asyncio.Lock()

    async def keep_up(self) -> None:
        """Until cancelled. What cannot be indexed now is indexed later."""
        while True:
            await self._clock.sleep(EVERY_S)
            try:
                await self.catch_up()
            except StoreError as error:
                logger.warning("the search index could not follow: %s", error)
            except Exception:
                # The one place where a fault of the index, which is nobody's only copy, does not end the daemon.
                logger.exception("the search index could not follow")

    async def catch_up(self) -> int:
        """Add what is missing; how many messages that was. Raises: StoreError."""
        async with self._following:
            number = await self._start()
            added = 0
            while rows := await self._database.read(partial(message_rows.numbered_after, number=number, limit=BATCH)):
                await self._in_thread(partial(_add, rows))
                number = rows[-1].number
                added += len(rows)
            return added

    async def search(self, wanted: Wanted) -> Page:
        """Raises: QueryRefused for a query that means nothing, StoreError."""
        match = match_of(wanted.query)
        try:
            return await self._search(wanted, match)
        except StoreDamaged:
            return await self._search(wanted, match)

    async def _search(self, wanted: Wanted, match: str) -> Page:
        await self.catch_up()
        agents = await self._database.read(agent_rows.all_agents)
        agent_ids = tuple(agent.id for agent in agents if wanted.agent_id in (None, agent.id))
        kinds = tuple(kind.value for kind in wanted.kinds)
        filters = Filters(agent_ids, wanted.conversation_id, kinds, wanted.span.since, wanted.span.until)
        limit = max(1, min(wanted.limit, PAGE_LIMIT))
        shown: list[Found] = []
        before = wanted.before
        for _ in range(_ROUNDS):
            found = await self._in_thread(
                partial(SearchIndex.find, match=match, filters=filters, before=before, limit=limit + 1)
            )
            visible = found if wanted.hidden else await self._visible(found)
            shown += [_as_said(one) for one in visible]
            if len(shown) > limit:
                return Page(tuple(shown[:limit]), shown[limit - 1].number)
            if len(found) <= limit:
                return Page(tuple(shown), None)
            before = found[-1].number
        return Page(tuple(shown), before)

    async def aclose(self) -> None:
        """May be called twice."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._thread.shutdown(wait=True)
        if self._index is not None:
            self._index.close()
            self._index = None

    async def _start(self) -> int:
        """Up to which number the index goes. One that was made from another database is begun anew."""
        number, message_id = await self._in_thread(lambda index: index.last())
        if number == 0:
            return 0
        known = await self._database.read(lambda connection: message_rows.id_of_number(connection, number))
        if known == message_id:
            return number
        logger.warning("%s does not belong to this database; it is made anew", self._path)
        await self._in_thread(lambda index: index.clear())
        return 0

    async def _visible(self, found: tuple[Found, ...]) -> tuple[Found, ...]:
        keys = {_key(one) for one in found}

        def hidden(connection: sqlite3.Connection) -> set[ConversationKey]:
            return {key for key in keys if conversation_rows.is_hidden(connection, key)}

        concealed = await self._database.read(hidden)
        return tuple(one for one in found if _key(one) not in concealed)

    async def _in_thread(self, work: Callable[[SearchIndex], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._work, work)

    def _work(self, work: Callable[[SearchIndex], T]) -> T:
        try:
            if self._index is None:
                self._index = SearchIndex.open(self._path)
            return work(self._index)
        except (sqlite3.Error, OSError) as error:
            fault = translated(error, self._path)
            if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError):
                self._throw_away()
            raise fault from error

    def _throw_away(self) -> None:
        """A damaged index helps nobody; the next search makes a new one."""
        logger.warning("%s is damaged; it is made anew", self._path)
        if self._index is not None:
            self._index.close()
            self._index = None
        indexes.remove(self._path)


def _add(rows: tuple[NumberedMessage, ...], index: SearchIndex) -> None:
    index.add([_document(row) for row in rows])


def _key(found: Found) -> ConversationKey:
    return ConversationKey(AgentId(found.agent_id), ConversationId(found.conversation_id))


def _document(row: NumberedMessage) -> Document:
    message = row.message
    return Document(
        number=row.number,
        message_id=message.message_id,
        agent_id=row.key.agent_id,
        conversation_id=row.key.conversation_id,
        kind=message.kind.value,
        created_at=message.created_at,
        text=indexed_text(from_row(message)),
    )


def _as_said(found: Found) -> Found:
    return replace(found, snippet=joined(found.snippet))
