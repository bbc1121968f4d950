"""The row modules, each by a whole round trip on a real database."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from lodger_daemon.clock import WallTime
from lodger_daemon.identity import AgentId, ClientMessageId, ConversationKey, MessageId, RunId, TurnId
from lodger_daemon.store import (
    agent_rows,
    audit_rows,
    conversation_rows,
    event_rows,
    journal_rows,
    message_rows,
    outbox_rows,
    run_rows,
    setting_rows,
    turn_rows,
)
from lodger_daemon.store.audit_rows import AuditRow
from lodger_daemon.store.conversation_rows import ConversationState
from lodger_daemon.store.errors import ConstraintViolated, RunActive, StateConflict, UnknownRow
from lodger_daemon.store.event_rows import EventRow
from lodger_daemon.store.journal_rows import CallOutcome, JournalEntry, OutcomeStatus
from lodger_daemon.store.message_rows import MessageKind, NewMessage, StoredMessage
from lodger_daemon.store.outbox_rows import OutboxRow
from lodger_daemon.store.run_rows import RunRow, RunStatus
from lodger_daemon.store.turn_rows import TurnRow
from lodger_daemon.turns.contract import AgentRecord, ConversationRecord
from lodger_daemon.turns.core.stop_reasons import StopReason
from lodger_tools.permissions.core.modes import Mode
from support.store_rows import CALL, KEY, NOW, OTHER_KEY, RUN, TURN, open_database, start_run, start_turn

LATER = WallTime(NOW + 5)
DIGEST = "0" * 64

AGENT = AgentRecord(
    id=AgentId("agent-1"),
    name="Ada",
    description="d",
    model="practice/practice",
    system="",
    tags=("a", "b"),
    created_at=NOW,
    updated_at=NOW,
)


def message(name: str, **options) -> NewMessage:
    return NewMessage(MessageId(name), options.pop("kind", MessageKind.USER), {"text": name}, NOW, **options)


def stored(new: NewMessage, sequence: int) -> StoredMessage:
    return StoredMessage(
        new.message_id, new.kind, new.content, new.created_at, new.otid, new.run_id, new.turn_id, new.tool_call_id,
        sequence,
    )  # fmt: skip


async def test_agents(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    await database.write(lambda c: agent_rows.insert(c, AGENT))
    changed = replace(AGENT, name="Bea", hidden=True, updated_at=LATER)
    await database.write(lambda c: agent_rows.replace(c, changed))
    await database.write(lambda c: agent_rows.run_completed(c, AGENT.id, LATER))
    expected = replace(changed, last_run_completion=LATER)
    assert await database.read(agent_rows.all_agents) == (expected,)
    assert await database.read(lambda c: agent_rows.get(c, AGENT.id)) == expected
    assert await database.read(lambda c: agent_rows.get(c, AgentId("agent-none"))) is None
    with pytest.raises(ConstraintViolated):
        await database.write(lambda c: agent_rows.insert(c, AGENT))
    with pytest.raises(UnknownRow):
        await database.write(lambda c: agent_rows.replace(c, replace(AGENT, id=AgentId("agent-none"))))
    await database.aclose()


async def test_conversations(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    first = await database.write(lambda c: conversation_rows.ensure(c, KEY, NOW))
    assert await database.write(lambda c: conversation_rows.ensure(c, KEY, LATER)) == first
    record = ConversationRecord(
        key=OTHER_KEY, created_at=NOW, updated_at=LATER, last_message_at=None, summary="s", tags=("t",),
        archived_at=None, model="openai/x", hidden=True,
    )  # fmt: skip
    await database.write(lambda c: conversation_rows.insert(c, record))
    with pytest.raises(ConstraintViolated):
        await database.write(lambda c: conversation_rows.insert(c, record))
    plain = replace(record, key=KEY, updated_at=NOW, summary=None, tags=(), model=None, hidden=False)
    assert await database.read(lambda c: conversation_rows.newest(c, None, 10)) == (record, plain)
    assert await database.read(lambda c: conversation_rows.newest(c, AgentId("agent-2"), 10)) == ()
    assert await database.read(lambda c: conversation_rows.find(c, "conv-2")) == record
    assert await database.read(lambda c: conversation_rows.find(c, "default")) is None
    assert await database.read(conversation_rows.keys) == (KEY, OTHER_KEY)
    described = replace(plain, summary="new", archived_at=LATER)
    await database.write(lambda c: conversation_rows.describe(c, described))
    await database.write(lambda c: conversation_rows.touch(c, KEY, LATER))
    expected = replace(described, updated_at=LATER, last_message_at=LATER)
    assert await database.read(lambda c: conversation_rows.get(c, KEY)) == expected
    await database.aclose()


async def test_the_state_of_a_conversation(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    await database.write(lambda c: conversation_rows.ensure(c, KEY, NOW))
    fresh = await database.read(lambda c: conversation_rows.state(c, KEY))
    assert fresh == ConversationState(None, None, 0, None, (), None, 0)
    await database.write(lambda c: conversation_rows.set_mode(c, KEY, Mode.STRICT))
    assert await database.write(lambda c: conversation_rows.set_cwd(c, KEY, "/w")) == 1
    assert await database.write(lambda c: conversation_rows.bump_cwd_revision(c, KEY)) == 2
    await database.write(lambda c: conversation_rows.set_system_prompt(c, KEY, "You are"))
    await database.write(lambda c: conversation_rows.set_toolset(c, KEY, ["Bash"]))
    await database.write(lambda c: conversation_rows.set_shown_memory_commit(c, KEY, "abc"))
    now = await database.read(lambda c: conversation_rows.state(c, KEY))
    assert now == ConversationState(Mode.STRICT, "/w", 2, "You are", ("Bash",), "abc", 0)
    for unknown in (conversation_rows.state, conversation_rows.bump_cwd_revision, conversation_rows.required):
        with pytest.raises(UnknownRow):
            await database.write(lambda c, unknown=unknown: unknown(c, OTHER_KEY))
    await database.aclose()


async def test_the_transcript_and_its_pages(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    await database.write(lambda c: conversation_rows.ensure(c, KEY, NOW))
    new = [message(f"m{number}", otid=f"o{number}", turn_id=TURN) for number in range(1, 6)]
    for one in new:
        await database.write(lambda c, one=one: message_rows.append(c, KEY, one))
    all_five = [stored(one, sequence) for sequence, one in enumerate(new, start=1)]

    async def page(**options):
        return list(await database.read(lambda c: message_rows.page(c, KEY, **options)))

    assert await page(limit=2) == [all_five[4], all_five[3]]
    assert await page(limit=2, before=MessageId("m4")) == [all_five[2], all_five[1]]
    assert await page(limit=9, descending=False, after=MessageId("m3")) == all_five[3:]
    assert await page(limit=9, before=MessageId("none")) == []
    assert await database.read(lambda c: message_rows.page(c, OTHER_KEY, 9)) == ()
    assert await database.read(lambda c: message_rows.get(c, MessageId("m2"))) == all_five[1]
    await database.aclose()


async def test_compaction_appends_and_changes_the_view_in_one_change(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    await database.write(lambda c: conversation_rows.ensure(c, KEY, NOW))
    new = [message(f"m{number}") for number in range(1, 5)]
    for one in new:
        await database.write(lambda c, one=one: message_rows.append(c, KEY, one))
    summary = message("s", kind=MessageKind.SUMMARY)
    with pytest.raises(UnknownRow, match="no message none"):
        await database.write(lambda c: message_rows.compact(c, KEY, summary, [MessageId("none")]))
    before = await database.read(lambda c: message_rows.in_context(c, KEY))
    assert before == tuple(stored(one, sequence) for sequence, one in enumerate(new, start=1))
    await database.write(lambda c: message_rows.compact(c, KEY, summary, [MessageId("m4")]))
    await database.write(lambda c: message_rows.append(c, KEY, message("m6")))
    await database.write(lambda c: message_rows.append(c, KEY, message("aside"), in_context=False))
    view = await database.read(lambda c: message_rows.in_context(c, KEY))
    assert [one.message_id for one in view] == ["s", "m4", "m6"]
    record = await database.read(lambda c: conversation_rows.get(c, KEY))
    assert record is not None
    assert record.in_context_message_ids == ("s", "m4", "m6")
    assert len(await database.read(lambda c: message_rows.page(c, KEY, 99))) == 7
    await database.aclose()


async def test_a_call_has_one_result(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    await start_run(database)
    result = message("m1", kind=MessageKind.TOOL, run_id=RUN, tool_call_id=CALL.tool_call_id)
    await database.write(lambda c: message_rows.append(c, KEY, result))
    with pytest.raises(StateConflict, match="has a result already"):
        await database.write(lambda c: message_rows.append(c, KEY, replace(result, message_id=MessageId("m2"))))
    assert await database.read(lambda c: message_rows.result_of(c, CALL)) == stored(result, 1)
    await database.aclose()


async def test_text_that_utf8_cannot_hold_is_stored(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    await database.write(lambda c: conversation_rows.ensure(c, KEY, NOW))
    half = NewMessage(MessageId("m1"), MessageKind.USER, "half \ud83d and ü", NOW)
    await database.write(lambda c: message_rows.append(c, KEY, half))
    assert await database.read(lambda c: message_rows.get(c, half.message_id)) == stored(half, 1)
    await database.aclose()


async def test_the_latest_turn_with_calls_is_not_one_that_only_spoke(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    await start_run(database)
    assert await database.read(lambda c: turn_rows.latest_with_calls(c, KEY)) is None

    def work(c: sqlite3.Connection) -> None:
        journal_rows.start(c, CALL, "Bash", {"command": "ls"}, DIGEST, "mode standard", NOW)
        journal_rows.finish(c, CALL, CallOutcome(OutcomeStatus.SUCCESS, "done"), NOW)
        run_rows.end(c, RUN, RunStatus.COMPLETED, StopReason.END_TURN, NOW)
        turn_rows.finish(c, TURN, StopReason.END_TURN, NOW, RUN)

    await database.write(work)
    await start_turn(database, turn=TurnId("turn-2"))
    await database.write(lambda c: run_rows.start(c, KEY, RunId("run-2"), TurnId("turn-2"), LATER))
    found = await database.read(lambda c: turn_rows.latest_with_calls(c, KEY))
    assert found is not None and found.turn_id == TURN
    await database.aclose()


async def test_turns_and_runs(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    await start_run(database)
    with pytest.raises(StateConflict, match="active turn"):
        await start_turn(database, turn=TurnId("turn-2"))
    with pytest.raises(RunActive):
        await database.write(lambda c: run_rows.start(c, KEY, RunId("run-2"), TURN, NOW))
    run = RunRow(KEY, RUN, TURN, RunStatus.ACTIVE, None, None, (), NOW, None)
    turn = TurnRow(KEY, TURN, "message", "active", None, None, None, NOW, None)
    assert await database.read(lambda c: run_rows.active(c, KEY)) == run
    assert await database.read(run_rows.all_active) == (run,)
    assert await database.read(lambda c: turn_rows.active(c, KEY)) == turn
    assert await database.read(turn_rows.all_active) == (turn,)
    await database.write(lambda c: run_rows.end(c, RUN, RunStatus.COMPLETED, StopReason.REQUIRES_APPROVAL, LATER))
    second = RunRow(
        KEY, RunId("run-2"), TURN, RunStatus.FAILED, StopReason.ERROR, "no", (ClientMessageId("cm"),), LATER, LATER
    )
    await database.write(lambda c: run_rows.start(c, KEY, second.run_id, TURN, LATER, second.client_message_ids))
    await database.write(lambda c: run_rows.end(c, second.run_id, RunStatus.FAILED, StopReason.ERROR, LATER, "no"))
    with pytest.raises(StateConflict):
        await database.write(lambda c: run_rows.end(c, RUN, RunStatus.FAILED, StopReason.ERROR, LATER))
    await database.write(lambda c: turn_rows.finish(c, TURN, StopReason.ERROR, LATER, second.run_id, "no"))
    with pytest.raises(StateConflict):
        await database.write(lambda c: turn_rows.finish(c, TURN, StopReason.END_TURN, LATER))
    first = replace(run, status=RunStatus.COMPLETED, stop_reason=StopReason.REQUIRES_APPROVAL, ended_at=LATER)
    assert await database.read(lambda c: run_rows.recent(c, KEY)) == (first, second)
    assert await database.read(lambda c: run_rows.recent(c, KEY, 1)) == (second,)
    assert await database.read(lambda c: run_rows.get(c, RUN)) == first
    assert await database.read(lambda c: run_rows.active(c, KEY)) is None
    finished = replace(
        turn, status="finished", stop_reason=StopReason.ERROR, run_id=second.run_id, error="no", ended_at=LATER
    )
    assert await database.read(lambda c: turn_rows.get(c, TURN)) == finished
    assert await database.read(lambda c: turn_rows.active(c, KEY)) is None
    await database.aclose()


async def test_the_journal(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    await start_run(database)

    def start(c):
        journal_rows.start(c, CALL, "Bash", {"command": "ls"}, DIGEST, "mode standard", NOW)

    await database.write(start)
    with pytest.raises(StateConflict, match="started before"):
        await database.write(start)
    entry = JournalEntry(CALL, "Bash", {"command": "ls"}, DIGEST, "mode standard", None, NOW, None)
    assert await database.read(journal_rows.unfinished) == (entry,)
    assert await database.read(lambda c: journal_rows.unfinished(c, KEY)) == (entry,)
    assert await database.read(lambda c: journal_rows.unfinished(c, OTHER_KEY)) == ()
    outcome = CallOutcome(OutcomeStatus.UNKNOWN, "half \ud83d", "/run/x")
    await database.write(lambda c: journal_rows.finish(c, CALL, outcome, LATER))
    with pytest.raises(StateConflict, match="is not running"):
        await database.write(lambda c: journal_rows.finish(c, CALL, outcome, LATER))
    finished = replace(entry, outcome=replace(outcome, text="half ?"), finished_at=LATER)
    assert await database.read(lambda c: journal_rows.get(c, CALL)) == finished
    assert await database.read(journal_rows.unfinished) == ()
    await database.aclose()


async def test_events_are_found_after_a_cursor_and_keep_to_reserved_numbers(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    await database.write(lambda c: conversation_rows.ensure(c, KEY, NOW))
    assert await database.write(lambda c: event_rows.reserve_numbers(c, KEY, 3)) == 3
    rows = tuple(EventRow(number, NOW, "text", f'{{"n":{number}}}') for number in (1, 2, 3))
    await database.write(lambda c: event_rows.insert(c, KEY, rows))
    assert await database.read(lambda c: event_rows.after(c, KEY, 1)) == rows[1:]
    assert await database.read(lambda c: event_rows.after(c, KEY, 0, limit=2)) == rows[:2]
    with pytest.raises(StateConflict, match="up to 3 only"):
        await database.write(lambda c: event_rows.insert(c, KEY, [EventRow(4, NOW, "text", "{}")]))
    with pytest.raises(ConstraintViolated, match="UNIQUE"):
        await database.write(lambda c: event_rows.insert(c, KEY, rows))
    await database.write(lambda c: event_rows.keep_newest(c, KEY, 3))
    assert await database.read(lambda c: event_rows.forgotten(c, KEY)) == 0
    await database.write(lambda c: event_rows.keep_newest(c, KEY, 1))
    assert await database.read(lambda c: event_rows.after(c, KEY, 0)) == rows[2:]
    assert await database.read(lambda c: event_rows.forgotten(c, KEY)) == 2
    state = await database.read(lambda c: conversation_rows.state(c, KEY))
    assert state.reserved_event_number == 3
    await database.aclose()


async def test_events_of_every_conversation_are_forgotten_by_age(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    for key in (KEY, OTHER_KEY):
        await database.write(lambda c, key=key: conversation_rows.ensure(c, key, NOW))
        await database.write(lambda c, key=key: event_rows.reserve_numbers(c, key, 9))
    old, new = EventRow(1, NOW, "text", "{}"), EventRow(7, LATER, "text", "{}")
    await database.write(lambda c: event_rows.insert(c, KEY, (old, new)))
    await database.write(lambda c: event_rows.insert(c, OTHER_KEY, (old,)))
    await database.write(lambda c: event_rows.forget_before(c, NOW))
    assert await database.read(lambda c: event_rows.after(c, KEY, 0)) == (old, new)
    await database.write(lambda c: event_rows.forget_before(c, LATER))
    assert await database.read(lambda c: event_rows.after(c, KEY, 0)) == (new,)
    assert await database.read(lambda c: event_rows.after(c, OTHER_KEY, 0)) == ()
    assert await database.read(lambda c: event_rows.forgotten(c, OTHER_KEY)) == 1
    await database.aclose()


async def test_events_are_forgotten_a_part_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_rows, "FORGET_AT_ONCE", 4)
    database = open_database(tmp_path)
    for key in (KEY, OTHER_KEY):
        await database.write(lambda c, key=key: conversation_rows.ensure(c, key, NOW))
        await database.write(lambda c, key=key: event_rows.reserve_numbers(c, key, 9))
        rows = [EventRow(number, NOW, "text", "{}") for number in (1, 2, 3)]
        await database.write(lambda c, key=key, rows=rows: event_rows.insert(c, key, rows))

    async def kept() -> list[int]:
        return [len(await database.read(lambda c, key=key: event_rows.after(c, key, 0))) for key in (KEY, OTHER_KEY)]

    assert await database.write(lambda c: event_rows.forget_before(c, LATER)) is True
    assert await kept() == [0, 2]
    assert await database.write(lambda c: event_rows.forget_before(c, LATER)) is False
    assert await kept() == [0, 0]
    await database.aclose()


async def test_the_outbox_delivers_until_it_is_told(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    await database.write(lambda c: conversation_rows.ensure(c, KEY, NOW))

    def put(key: ConversationKey | None = KEY, name: str = "d1"):
        return database.write(
            lambda c: outbox_rows.put(c, name, ["phone", "desk"], "turn_finished", {"a": 1}, NOW, key)
        )

    assert (await put(), await put()) == (2, 0)
    await put(None, "d2")
    await database.write(lambda c: outbox_rows.attempted(c, "d1", "phone"))
    first = OutboxRow("d1", "phone", KEY, "turn_finished", {"a": 1}, 1, NOW)
    second = OutboxRow("d2", "phone", None, "turn_finished", {"a": 1}, 0, NOW)
    assert await database.read(lambda c: outbox_rows.undelivered(c, "phone")) == (first, second)
    assert await database.write(lambda c: outbox_rows.delivered(c, "d1", "phone", LATER)) is True
    assert await database.write(lambda c: outbox_rows.delivered(c, "d1", "phone", LATER)) is False
    assert await database.read(lambda c: outbox_rows.undelivered(c, "phone")) == (second,)
    assert len(await database.read(lambda c: outbox_rows.undelivered(c, "desk"))) == 2
    assert await database.write(lambda c: outbox_rows.prune(c, WallTime(LATER + 1))) == 1
    await database.aclose()


async def test_settings_and_audit(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    await database.write(lambda c: setting_rows.put(c, "a.x", [1], NOW))
    await database.write(lambda c: setting_rows.put(c, "a.x", {"b": None}, NOW))
    await database.write(lambda c: setting_rows.put(c, "b", "z", NOW))
    assert await database.read(lambda c: setting_rows.with_prefix(c, "a.")) == {"a.x": {"b": None}}
    assert await database.write(lambda c: setting_rows.remove(c, "b")) is True
    assert await database.write(lambda c: setting_rows.remove(c, "b")) is False
    assert await database.read(lambda c: setting_rows.get(c, "b")) is None
    rows = [AuditRow(NOW, "phone", "question.allowed", "call-1", {"n": n}) for n in (1, 2)]
    for row in rows:
        await database.write(lambda c, row=row: audit_rows.record(c, row))
    assert await database.read(audit_rows.newest) == (rows[1], rows[0])
    await database.aclose()
