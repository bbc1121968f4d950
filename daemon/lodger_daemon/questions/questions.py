"""The questions of all conversations of this daemon: pending ones survive a restart, each has one effect.

book = QuestionBook(database, clock)
await book.load()                                     # once at start: time limits of questions left open
asked = await book.ask(key, question, arguments)      # durable; show `asked`, which says when it expires
settled = await book.settle(key, question_id, answer, by=name)  # None when it is no longer pending
settled = await book.expire_due()                     # whenever `next_expiry_s` has passed
settled = await book.withdraw(key)                    # after an abort
book.pending(key)                                     # to show again
book.permits(call, tool_name, arguments)              # right before the call runs
"""

import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

from lodger_daemon.clock import Clock, MonoTime, WallTime
from lodger_daemon.identity import CallKey, ConversationKey, QuestionId
from lodger_daemon.questions.core.arguments import arguments_digest
from lodger_daemon.questions.core.rules import (
    DEFAULT_LIMIT_S,
    QuestionStatus,
    Settlement,
    permits,
    remaining_s,
    settle,
)
from lodger_daemon.questions.decisions import question_row, saved_rule_row
from lodger_daemon.store import audit_rows, question_rows
from lodger_daemon.store.database import Database
from lodger_daemon.store.errors import StoreError
from lodger_daemon.store.question_rows import NewQuestion, StoredQuestion
from lodger_daemon.turns.contract import Answer
from lodger_daemon.turns.core.events import QuestionAsked
from lodger_tools.box.contract import PinnedFile
from lodger_tools.json_value import JsonObject

_Name: TypeAlias = tuple[ConversationKey, QuestionId]


def _name(question: StoredQuestion) -> _Name:
    return question.conversation, question.asked.question_id


@dataclass(frozen=True, slots=True)
class SettledQuestion:
    """A question with its one effect."""

    question: StoredQuestion
    settlement: Settlement


class QuestionBook:
    """Safe to call from any task of the event loop. Raises the store's errors."""

    def __init__(self, database: Database, clock: Clock, limit_s: float = DEFAULT_LIMIT_S) -> None:
        self._database = database
        self._clock = clock
        self._limit_s = limit_s
        self._deadlines: dict[_Name, MonoTime] = {}
        """Of every open question. Monotonic, so a changed clock expires nothing."""

    async def load(self) -> tuple[StoredQuestion, ...]:
        """Take over the questions an earlier daemon left open; they are returned to be shown again."""
        now, mono = self._clock.wall(), self._clock.mono()
        left_open = await self._database.read(question_rows.open_ones)
        for question in left_open:
            wait_s = remaining_s(question.asked_at, question.expires_at, now)
            self._deadlines[_name(question)] = MonoTime(mono + wait_s)
        return left_open

    async def ask(
        self,
        key: ConversationKey,
        question: QuestionAsked,
        arguments: JsonObject,
        pinned: tuple[PinnedFile, ...] = (),
        rule: str | None = None,
        limit_s: float | None = None,
    ) -> QuestionAsked:
        """Store it, with `arguments` and the `pinned` files as what an answer is bound to. Show what is returned, and
        not before. `rule` is the one that wants it asked, for the audit log; `limit_s` an end before the usual one.

        Raises: StateConflict when a question about this call is open already.
        """
        now, mono = self._clock.wall(), self._clock.mono()
        wait_s = self._limit_s if limit_s is None else min(limit_s, self._limit_s)
        expires_at = WallTime(now + wait_s)
        asked = replace(question, input=arguments, expires_at=expires_at)
        digest = arguments_digest(asked.tool_name, arguments)
        new = NewQuestion(key, asked, digest, now, expires_at, pinned)

        def write(connection: sqlite3.Connection) -> None:
            question_rows.ask(connection, new)
            audit_rows.record(connection, question_row(key, asked, digest, now, "rules", "asked", rule))

        name = (key, asked.question_id)
        is_new = name not in self._deadlines
        # Before the write: a cancelled waiter does not undo it, and every open question ends in time.
        self._deadlines.setdefault(name, MonoTime(mono + wait_s))
        try:
            await self._database.write(write)
        except StoreError:
            if is_new:
                self._deadlines.pop(name, None)
            raise
        return asked

    def count(self) -> int:
        """How many questions are open on this machine."""
        return len(self._deadlines)

    def pending(self, key: ConversationKey) -> tuple[QuestionAsked, ...]:
        """The oldest first. At once; a few indexed rows."""
        stored = self._database.read_now(lambda connection: question_rows.open_ones(connection, key))
        return tuple(question.asked for question in stored)

    def open_question(self, key: ConversationKey, question_id: QuestionId) -> StoredQuestion | None:
        """At once; one indexed row."""
        return self._database.read_now(lambda connection: question_rows.open_one(connection, key, question_id))

    async def settle(
        self,
        key: ConversationKey,
        question_id: QuestionId,
        answer: Answer,
        pinned: tuple[PinnedFile, ...] | None = None,
        by: str = "client",
        also: Callable[[sqlite3.Connection, StoredQuestion], None] | None = None,
    ) -> SettledQuestion | None:
        """Give a person's answer its one effect; None when the question is no longer pending.

        Args:
            pinned: what an input they changed would run; None = what the question was asked about.
            by: the name of the client they answered from.
            also: written in the same commit, once.
        """

        def find(connection: sqlite3.Connection) -> tuple[StoredQuestion, ...]:
            found = question_rows.open_one(connection, key, question_id)
            return (found,) if found is not None else ()

        settled = await self._settle(
            find,
            lambda question: settle(
                answer, question.asked.tool_name, question.arguments, question.pinned if pinned is None else pinned
            ),
            by,
            also,
        )
        return settled[0] if settled else None

    async def withdraw(
        self, key: ConversationKey, only: frozenset[QuestionId] | None = None
    ) -> tuple[SettledQuestion, ...]:
        """Questions that need no answer any more, all or some, are dead from now on: their turn was interrupted, or a
        rule decides their calls. Those that a person has answered meanwhile are not among the returned."""

        def find(connection: sqlite3.Connection) -> Iterable[StoredQuestion]:
            found = question_rows.open_ones(connection, key)
            return (question for question in found if only is None or question.asked.question_id in only)

        return await self._settle(find, lambda question: Settlement(QuestionStatus.WITHDRAWN, None, None))

    async def rule_saved(self, key: ConversationKey, rule: str, by: str = "client") -> None:
        """Keep in the audit log that a person added a rule with an answer."""
        row = saved_rule_row(key, rule, self._clock.wall(), by)
        await self._database.write(lambda connection: audit_rows.record(connection, row))

    async def expire_due(self) -> tuple[SettledQuestion, ...]:
        """Settle every question nobody answered in time."""
        now = self._clock.mono()
        due = {name for name, deadline in self._deadlines.items() if deadline <= now}
        if not due:
            return ()
        settled = await self._settle(
            lambda connection: (q for q in question_rows.open_ones(connection) if _name(q) in due),
            lambda question: Settlement(QuestionStatus.EXPIRED, None, None),
        )
        for name in due:
            self._deadlines.pop(name, None)
        return settled

    def next_expiry_s(self) -> float | None:
        """How long until `expire_due` has something to do; None while nothing is open."""
        if not self._deadlines:
            return None
        return max(0.0, min(self._deadlines.values()) - self._clock.mono())

    def latest(self, call: CallKey) -> StoredQuestion | None:
        """The latest question about this call, open or settled."""
        return self._database.read_now(lambda connection: question_rows.latest_for(connection, call))

    def settlement(self, call: CallKey) -> Settlement | None:
        """The effect of the latest question about this call; None when there is none or it is open."""
        stored = self.latest(call)
        return stored.settlement if stored is not None else None

    def permits(self, call: CallKey, tool_name: str, arguments: JsonObject) -> bool:
        """Whether a person allowed this call with exactly these arguments."""
        settlement = self.settlement(call)
        return settlement is not None and permits(settlement, tool_name, arguments)

    async def _settle(
        self,
        find: Callable[[sqlite3.Connection], Iterable[StoredQuestion]],
        decide: Callable[[StoredQuestion], Settlement],
        by: str = "daemon",
        also: Callable[[sqlite3.Connection, StoredQuestion], None] | None = None,
    ) -> tuple[SettledQuestion, ...]:
        now = self._clock.wall()

        def write(connection: sqlite3.Connection) -> tuple[SettledQuestion, ...]:
            settled = []
            for question in tuple(find(connection)):
                settlement = decide(question)
                if question_rows.settle(connection, question.number, settlement, now):
                    digest = settlement.approved_digest or question.arguments_digest
                    row = question_row(question.conversation, question.asked, digest, now, by, settlement.status.value)
                    audit_rows.record(connection, row)
                    if also is not None:
                        also(connection, question)
                    settled.append(SettledQuestion(question, settlement))
            return tuple(settled)

        settled = await self._database.write(write)
        for one in settled:
            self._deadlines.pop(_name(one.question), None)
        return settled
