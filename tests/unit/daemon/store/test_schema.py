"""States that the schema makes impossible, tried with plain SQL on a real file."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lodger_daemon.identity import (
    AgentId,
    ConversationId,
    ConversationKey,
    MessageId,
    QuestionId,
    RunId,
    ToolCallId,
    TurnId,
)
from lodger_daemon.inbox.core.items import NewItem
from lodger_daemon.store import (
    conversation_rows,
    event_rows,
    inbox_rows,
    journal_rows,
    message_rows,
    outbox_rows,
    question_rows,
    run_rows,
    turn_rows,
)
from lodger_daemon.store.errors import StoreError
from lodger_daemon.store.message_rows import MessageKind, NewMessage
from lodger_daemon.store.question_rows import NewQuestion
from lodger_daemon.turns.core.events import QuestionAsked
from lodger_daemon.turns.core.stop_reasons import StopReason
from support.store_rows import CALL, KEY, NOW, OTHER_KEY, RUN, TURN, open_database, submission

MESSAGES = '[["cm1", "hi", ""]]'
DISPLAY = '{"reason": "", "suggestions": [], "previews": []}'

BASE = (
    "INSERT INTO conversations (number, agent_id, conversation_id, created_at, updated_at) "
    "VALUES (1, 'agent-1', 'conv-1', 0, 0), (2, 'agent-1', 'conv-2', 0, 0)",
    "INSERT INTO turns (turn_id, conversation, cause, status, started_at) VALUES ('t1', 1, 'message', 'active', 0)",
    "INSERT INTO runs (run_id, conversation, turn_id, status, client_message_ids, started_at) "
    "VALUES ('r1', 1, 't1', 'active', '[]', 0)",
    "INSERT INTO messages (number, message_id, conversation, sequence, kind, content, created_at) "
    "VALUES (1, 'm1', 1, 1, 'user', '{}', 0)",
    "INSERT INTO messages (number, message_id, conversation, sequence, kind, content, run_id, tool_call_id, "
    "created_at) VALUES (2, 'm2', 1, 2, 'tool', '{}', 'r1', 'c1', 0)",
    "INSERT INTO inbox (conversation, item_number, client_message_id, kind, source, messages, can_answer_questions, "
    "delivery, connection_group, disposition, status, accepted_at) "
    f"VALUES (1, 1, 'cm1', 'message', 'user', '{MESSAGES}', 1, 'turn_end', '', 'queued', 'accepted', 0)",
    "INSERT INTO journal (conversation, run_id, tool_call_id, tool_name, arguments, arguments_digest, approval, "
    f"status, started_at) VALUES (1, 'r1', 'c1', 'Bash', '{{}}', '{'0' * 64}', '', 'started', 0)",
    "INSERT INTO questions (number, conversation, question_id, run_id, tool_call_id, tool_name, input, "
    f"arguments_digest, display, status, asked_at, expires_at) "
    f"VALUES (1, 1, 'q1', 'r1', 'c1', 'Bash', '{{}}', '{'0' * 64}', "
    f"'{DISPLAY}', 'open', 0, 9)",
    "INSERT INTO audit (at, actor, action, subject, detail) VALUES (0, 'daemon', 'x', '', '{}')",
)

MESSAGE = NewMessage(MessageId("m9"), MessageKind.USER, {}, NOW)

SETTLED_QUESTION = "UPDATE questions SET status = 'withdrawn', settled_at = 1"
ENDED_RUN = "UPDATE runs SET status = 'completed', stop_reason = 'end_turn', ended_at = 1"
FINISHED_CALL = "UPDATE journal SET status = 'finished', outcome_status = 'success', outcome_text = '', finished_at = 1"
RESERVED = "UPDATE inbox SET status = 'reserved', turn_id = 't1'"
ADMITTED = "UPDATE inbox SET status = 'admitted', run_id = 'r1'"
ANSWERED = "UPDATE inbox SET status = 'answered', outcome = 'end_turn', settled_at = 1"
FINISHED_TURN = "UPDATE turns SET status = 'finished', stop_reason = 'end_turn', ended_at = 1"
ENDED_WAY = "; ".join((RESERVED, ADMITTED, ENDED_RUN, FINISHED_CALL, SETTLED_QUESTION, ANSWERED, FINISHED_TURN))
MORE_AUDIT = "; ".join(
    ["INSERT INTO audit (at, actor, action, subject, detail) VALUES (0, 'daemon', 'x', '', '{}')"] * 2
)

REFUSED = {
    "a second active turn": (
        "INSERT INTO turns (turn_id, conversation, cause, status, started_at) VALUES ('t2', 1, 'x', 'active', 0)",
        "turns.conversation",
    ),
    "a second active run": (
        "INSERT INTO runs (run_id, conversation, turn_id, status, client_message_ids, started_at) "
        "VALUES ('r2', 1, 't1', 'active', '[]', 0)",
        "runs.conversation",
    ),
    "an active run with an end": ("UPDATE runs SET ended_at = 1", "CHECK"),
    "an ended run without a reason": ("UPDATE runs SET status = 'failed', ended_at = 1", "CHECK"),
    "a run status of no name": (
        "UPDATE runs SET status = 'odd', stop_reason = 'error', ended_at = 1",
        "CHECK",
    ),
    "a run that ends twice": (f"{ENDED_RUN}; UPDATE runs SET status = 'failed'", "an ended run stays"),
    "a run of a turn that is not there": (
        f"{ENDED_RUN}; INSERT INTO runs (run_id, conversation, turn_id, status, client_message_ids, started_at) "
        "VALUES ('r2', 1, 'none', 'active', '[]', 0)",
        "FOREIGN KEY",
    ),
    "a rewritten message": ("UPDATE messages SET content = '[]'", "append-only"),
    "a deleted message": ("DELETE FROM messages WHERE number = 1", "append-only"),
    "two messages in one place": (
        "INSERT INTO messages (message_id, conversation, sequence, kind, content, created_at) "
        "VALUES ('m3', 1, 1, 'user', '{}', 0)",
        "messages.sequence",
    ),
    "two results of one call": (
        "INSERT INTO messages (message_id, conversation, sequence, kind, content, run_id, tool_call_id, created_at) "
        "VALUES ('m3', 1, 3, 'tool', '{}', 'r1', 'c1', 0)",
        "messages.tool_call_id",
    ),
    "a result without a call": (
        "INSERT INTO messages (message_id, conversation, sequence, kind, content, created_at) "
        "VALUES ('m3', 1, 3, 'tool', '{}', 0)",
        "CHECK",
    ),
    "content that is no JSON": (
        "INSERT INTO messages (message_id, conversation, sequence, kind, content, created_at) "
        "VALUES ('m3', 1, 3, 'user', '{', 0)",
        "CHECK",
    ),
    "another conversation's message in context": ("INSERT INTO in_context VALUES (2, 1, 1)", "another conversation"),
    "a message twice in context": ("INSERT INTO in_context VALUES (1, 1, 1), (1, 2, 1)", "in_context.message"),
    "a client message id twice": (
        "INSERT INTO inbox (conversation, item_number, client_message_id, kind, source, messages, "
        "can_answer_questions, delivery, connection_group, disposition, status, accepted_at) "
        "VALUES (1, 2, 'cm1', 'message', 'user', '[1]', 1, 'turn_end', '', 'queued', 'accepted', 0)",
        "inbox.client_message_id",
    ),
    "an item that skips its reservation": (
        "UPDATE inbox SET status = 'admitted', turn_id = 't1', run_id = 'r1'",
        "no such step",
    ),
    "an item answered before it was admitted": (
        f"{RESERVED}; UPDATE inbox SET status = 'answered', run_id = 'r1', outcome = 'x', settled_at = 1",
        "no such step",
    ),
    "an item admitted twice": (f"{RESERVED}; {ADMITTED}; {RESERVED}, run_id = NULL", "no such step"),
    "an admitted item that is cancelled": (
        f"{RESERVED}; {ADMITTED}; UPDATE inbox SET status = 'cancelled', outcome = 'x', settled_at = 1",
        "no such step",
    ),
    "a reservation for no turn": ("UPDATE inbox SET status = 'reserved'", "CHECK"),
    "an admission to no run": (f"{RESERVED}; UPDATE inbox SET status = 'admitted'", "CHECK"),
    "an answered item without an outcome": (
        f"{RESERVED}; {ADMITTED}; UPDATE inbox SET status = 'answered', settled_at = 1",
        "CHECK",
    ),
    "a forgotten item": ("DELETE FROM inbox", "never forgotten"),
    "a call started twice": (
        "INSERT INTO journal (conversation, run_id, tool_call_id, tool_name, arguments, arguments_digest, approval, "
        f"status, started_at) VALUES (1, 'r1', 'c1', 'Bash', '{{}}', '{'0' * 64}', '', 'started', 0)",
        "journal.tool_call_id",
    ),
    "a finished call without an outcome": ("UPDATE journal SET status = 'finished', finished_at = 1", "CHECK"),
    "a call finished twice": (f"{FINISHED_CALL}; UPDATE journal SET outcome_text = 'other'", "a finished call stays"),
    "a forgotten call": ("DELETE FROM journal", "never forgotten"),
    "a second open question for a call": (
        "INSERT INTO questions (conversation, question_id, run_id, tool_call_id, tool_name, input, arguments_digest, "
        f"display, status, asked_at, expires_at) VALUES (1, 'q2', 'r1', 'c1', 'Bash', '{{}}', '{'0' * 64}', '{{}}', "
        "'open', 0, 9)",
        "questions.tool_call_id",
    ),
    "a question settled twice": (f"{SETTLED_QUESTION}; UPDATE questions SET status = 'expired'", "settled once"),
    "an allowance without an answer": (
        f"UPDATE questions SET status = 'allowed', approved_digest = '{'0' * 64}', settled_at = 1",
        "CHECK",
    ),
    "an allowance of nothing in particular": (
        "UPDATE questions SET status = 'allowed', answer = '{}', settled_at = 1",
        "CHECK",
    ),
    "a denial that approves": (
        f"UPDATE questions SET status = 'denied', answer = '{{}}', approved_digest = '{'0' * 64}', settled_at = 1",
        "CHECK",
    ),
    "a turn that leaves its input": (
        f"{RESERVED}; {ENDED_RUN}; {FINISHED_CALL}; {SETTLED_QUESTION}; {FINISHED_TURN}",
        "its input is answered or released",
    ),
    "a turn that leaves its run": (f"{FINISHED_CALL}; {SETTLED_QUESTION}; {FINISHED_TURN}", "after its runs"),
    "a turn that leaves a call": (f"{ENDED_RUN}; {SETTLED_QUESTION}; {FINISHED_TURN}", "after its tool calls"),
    "a turn that leaves a question": (f"{ENDED_RUN}; {FINISHED_CALL}; {FINISHED_TURN}", "after its questions"),
    "a turn that finishes twice": (
        f"{ENDED_RUN}; {FINISHED_CALL}; {SETTLED_QUESTION}; {FINISHED_TURN}; UPDATE turns SET stop_reason = 'error'",
        "a finished turn stays",
    ),
    "event numbers that go back": (
        "UPDATE conversations SET reserved_event_number = 9; UPDATE conversations SET reserved_event_number = 8",
        "never go back",
    ),
    "an event number twice": (
        "INSERT INTO events VALUES (1, 1, 0, 'x', '{}'); INSERT INTO events VALUES (1, 1, 0, 'x', '{}')",
        "events.number",
    ),
    "a mode of no name": ("UPDATE conversations SET mode = 'yolo'", "CHECK"),
    "an agent of another shape": (
        "INSERT INTO agents VALUES ('me', '', '', '', '', '[]', 0, 0, 0, NULL, NULL)",
        "CHECK",
    ),
    "a changed audit line": ("UPDATE audit SET actor = 'nobody'", "append-only"),
    "a deleted audit line": ("DELETE FROM audit", "append-only"),
    "a deleted newest audit line": (f"{MORE_AUDIT}; {ENDED_WAY}; DELETE FROM audit", "append-only"),
    "a deleted audit line in the middle": (
        f"{MORE_AUDIT}; {ENDED_WAY}; DELETE FROM audit WHERE number = 2",
        "append-only",
    ),
    "a deleted audit line of an open turn": (f"{MORE_AUDIT}; DELETE FROM audit WHERE number = 1", "open turn"),
    "an epoch that does not grow": ("UPDATE ownership SET epoch = epoch", "only grows"),
    "text where a number belongs": ("UPDATE conversations SET cwd_revision = 'one'", "TEXT value"),
}


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    asyncio.run(open_database(tmp_path).aclose())
    connection = sqlite3.connect(tmp_path / "lodger.db", isolation_level=None)
    connection.execute("PRAGMA foreign_keys = ON")
    for statement in BASE:
        connection.execute(statement)
    yield connection
    connection.close()


@pytest.mark.parametrize("name", REFUSED)
def test_refused(connection: sqlite3.Connection, name: str) -> None:
    *before, last = REFUSED[name][0].split("; ")
    for statement in before:
        connection.execute(statement)
    with pytest.raises(sqlite3.IntegrityError, match=REFUSED[name][1]):
        connection.execute(last)


def test_the_whole_way_of_a_turn_is_allowed(connection: sqlite3.Connection) -> None:
    for statement in ENDED_WAY.split("; "):
        connection.execute(statement)
    assert connection.execute("SELECT status FROM turns").fetchall() == [("finished",)]


NEW_KEY = ConversationKey(AgentId("agent-1"), ConversationId("conv-9"))

BESIDE_HISTORY = {
    "conversation_rows.ensure": lambda c: conversation_rows.ensure(c, NEW_KEY, NOW),
    "turn_rows.start": lambda c: turn_rows.start(c, OTHER_KEY, TurnId("t9"), "message", NOW),
    "run_rows.start": lambda c: run_rows.start(c, OTHER_KEY, RunId("r9"), TurnId("t1"), NOW),
    "journal_rows.start": lambda c: journal_rows.start(
        c, replace(CALL, run_id=RunId("r1")), "Bash", {}, "0" * 64, "", NOW
    ),
    "question_rows.ask": lambda c: question_rows.ask(
        c,
        NewQuestion(KEY, QuestionAsked(QuestionId("q"), RunId("r1"), ToolCallId("c9"), "Bash", {}), "0" * 64, NOW, NOW),
    ),
    "outbox_rows.put": lambda c: outbox_rows.put(c, "d", ["phone"], "x", {}, NOW, KEY),
    "turn_rows.active": lambda c: turn_rows.active(c, KEY),
    "turn_rows.all_active": turn_rows.all_active,
    "turn_rows.finish": lambda c: turn_rows.finish(c, TURN, StopReason.END_TURN, NOW),
    "run_rows.active": lambda c: run_rows.active(c, KEY),
    "run_rows.all_active": run_rows.all_active,
    "run_rows.recent": lambda c: run_rows.recent(c, KEY),
    "message_rows.append": lambda c: message_rows.append(c, KEY, MESSAGE),
    "message_rows.in_context": lambda c: message_rows.in_context(c, KEY),
    "message_rows.page": lambda c: message_rows.page(c, KEY, 50),
    "inbox_rows.accept": lambda c: inbox_rows.accept(c, KEY, NewItem(submission("cm2")), "queued", NOW),
    "inbox_rows.waiting": lambda c: inbox_rows.waiting(c, KEY),
    "inbox_rows.reserve": lambda c: inbox_rows.reserve(c, KEY, [], TURN),
    "inbox_rows.admit": lambda c: inbox_rows.admit(c, TURN, RUN),
    "inbox_rows.release": lambda c: inbox_rows.release(c, TURN),
    "inbox_rows.park": lambda c: inbox_rows.park(c, KEY),
    "inbox_rows.resume": lambda c: inbox_rows.resume(c, KEY),
    "inbox_rows.reserved": inbox_rows.reserved,
    "inbox_rows.keys_with_work": inbox_rows.keys_with_work,
    "journal_rows.unfinished": journal_rows.unfinished,
    "journal_rows.unfinished of one": lambda c: journal_rows.unfinished(c, KEY),
    "question_rows.open_ones": question_rows.open_ones,
    "question_rows.open_ones of one": lambda c: question_rows.open_ones(c, KEY),
    "question_rows.latest_for": lambda c: question_rows.latest_for(c, CALL),
    "event_rows.after": lambda c: event_rows.after(c, KEY, 1),
    "outbox_rows.undelivered": lambda c: outbox_rows.undelivered(c, "phone"),
}

OPEN_ONLY = ("one_active_turn", "one_active_run", "waiting_inbox", "unfinished_calls", "one_open_question")
"""Indexes that hold only what is open now; walking one whole costs nothing, however long the past is."""


@pytest.mark.parametrize("name", BESIDE_HISTORY)
def test_a_long_past_costs_nothing(connection: sqlite3.Connection, name: str) -> None:
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    with contextlib.suppress(sqlite3.Error, StoreError):
        BESIDE_HISTORY[name](connection)
    connection.set_trace_callback(None)
    steps = [
        f"{statement[:6]}: {step[3]}"
        for statement in statements
        if statement.startswith(("SELECT", "UPDATE", "INSERT", "DELETE"))
        for step in connection.execute(f"EXPLAIN QUERY PLAN {statement}")
    ]
    assert statements
    assert [step for step in steps if " SCAN " in step and not step.endswith(OPEN_ONLY)] == []
    # Of a conversation's whole inbox an update would read every row; the index of live items holds a few.
    assert [step for step in steps if step.startswith("UPDATE") and "autoindex_inbox_2 (conversation=?)" in step] == []
