"""What a step that calls tools writes in one commit, and what becomes of that when the rules or the person change
their mind right after it."""

import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from lodger_daemon.identity import CallKey, RunId, ToolCallId
from lodger_daemon.models.contract import FinishReason, StepEnded, ToolCallChunk, ToolMessage, Usage
from lodger_daemon.store import journal_rows, run_rows
from lodger_daemon.store.journal_rows import JournalEntry, OutcomeStatus
from lodger_daemon.store.run_rows import RunStatus
from lodger_daemon.turns.core import events as seen
from lodger_daemon.turns.core.events import LoopStatus
from lodger_daemon.turns.core.stop_reasons import StopReason
from lodger_tools.permissions.core.modes import Mode
from lodger_tools.permissions.core.verdicts import CallToJudge, Denied, NeedsPerson, Verdict
from support.turn_parts import Gate, House, calls, says


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    one = House(tmp_path)
    yield one
    await one.close()


def count_writes(house: House) -> list[object]:
    """Grows with each commit that somebody waits for."""
    writes: list[object] = []
    write = house.database.write

    async def counting(change: Callable[[sqlite3.Connection], Any]) -> Any:
        writes.append(change)
        return await write(change)

    house.database.write = counting  # type: ignore[method-assign]
    return writes


def journalled(house: House) -> JournalEntry | None:
    run_id = next(event.run_id for event in house.events if isinstance(event, seen.ToolCallRequested))
    key = CallKey(house.key, run_id, ToolCallId("c1"))
    return house.database.read_now(lambda connection: journal_rows.get(connection, key))


def runs(house: House) -> list[tuple[RunId, RunStatus]]:
    rows = house.database.read_now(lambda connection: run_rows.recent(connection, house.key, 10))
    return [(row.run_id, row.status) for row in rows]


def judged_otherwise_after_the_first_time(house: House, verdict: Verdict) -> None:
    judge, seen_before = house.judge.judge, []

    def changing(call: CallToJudge, mode: Mode) -> Verdict:
        first = not seen_before
        seen_before.append(call)
        return judge(call, mode) if first else verdict

    house.judge.judge = changing  # type: ignore[method-assign]


async def test_a_short_step_and_the_start_of_its_calls_are_one_commit(house: House) -> None:
    await house.start()
    house.models.play(calls("one", "two", name="Read"), says("done"))
    house.toolbox.gates["one"] = Gate()
    writes = count_writes(house)
    await house.say("go", "m1")
    await house.toolbox.gates["one"].reached.wait()
    await house.until_seen(seen.ToolReturned)
    accepted, stepped, second_ended = 1, 1, 1
    assert len(writes) == accepted + stepped + second_ended
    [(_, status)] = runs(house)
    assert status is RunStatus.COMPLETED
    entry = journalled(house)
    assert entry is not None
    assert (entry.outcome, entry.approval) == (None, "rules")
    house.toolbox.gates["one"].opened.set()
    await house.settled()
    assert house.toolbox.ran == ["one", "two"]


async def test_a_call_that_waits_for_another_is_not_started_with_it(house: House) -> None:
    await house.start()
    house.models.play(calls("one", "two"), says("done"))
    house.toolbox.gates["one"] = Gate()
    await house.say("go", "m1")
    await house.toolbox.gates["one"].reached.wait()
    started = house.database.read_now(lambda connection: journal_rows.unfinished(connection, house.key))
    assert [entry.call.tool_call_id for entry in started] == ["c1"]
    house.toolbox.gates["one"].opened.set()
    await house.settled()
    assert house.toolbox.ran == ["one", "two"]


async def test_nothing_is_started_with_a_step_that_asks_the_person(house: House) -> None:
    await house.start()
    house.models.play(calls("free", "ask me"), says("done"))
    await house.say("go", "m1")
    await house.until_seen(seen.QuestionAsked)
    assert journalled(house) is None
    assert house.toolbox.ran == []


async def test_a_step_that_shows_nothing_for_long_is_written_down_meanwhile(house: House) -> None:
    await house.start()
    gate = Gate()
    begin, end = ToolCallChunk(0, "c1", "Bash", '{"command": '), ToolCallChunk(0, "", "", '"late"}')
    house.models.play(
        [begin, gate, end, StepEnded(FinishReason.TOOL_CALLS, Usage(prompt=10, completion=2))], says("done")
    )
    await house.say("go", "m1")
    await gate.reached.wait()
    await house.until(lambda: runs(house) != [])
    [(run_id, status)] = runs(house)
    assert status is RunStatus.ACTIVE
    await house.until(
        lambda: any(
            isinstance(event, seen.LoopStatusChanged)
            and (event.status, event.run_id) == (LoopStatus.PROCESSING_API_RESPONSE, run_id)
            for event in house.events
        )
    )
    gate.opened.set()
    await house.settled()
    assert house.toolbox.ran == ["late"]
    assert [status for _, status in runs(house)] == [RunStatus.COMPLETED] * 2


@pytest.mark.parametrize("verdict", [Denied("a new rule denies it"), NeedsPerson("a new rule asks about it")])
async def test_a_call_started_on_paper_is_judged_again_before_it_runs(house: House, verdict: Verdict) -> None:
    await house.start()
    house.models.play(calls("one"), says("done"))
    judged_otherwise_after_the_first_time(house, verdict)
    await house.say("go", "m1")
    await house.settled()
    assert house.toolbox.ran == []
    assert house.seen(seen.QuestionAsked) == []
    entry = journalled(house)
    assert entry is not None
    assert entry.outcome is not None
    assert entry.outcome.status is OutcomeStatus.ERROR
    assert "a new rule" in entry.outcome.text
    [result] = [m for m in house.models.requests[1].messages if isinstance(m, ToolMessage)]
    assert "a new rule" in str(result)


async def test_a_call_started_on_paper_and_interrupted_before_it_ran_has_an_end(house: House) -> None:
    await house.start()
    house.models.play(calls("one"), says("done"))
    look = house.toolbox.path_gates["one"] = Gate()
    judge = house.judge.judge

    def looking_from_now_on(call: CallToJudge, mode: Mode) -> Verdict:
        house.judge.path_rules = True
        return judge(call, mode)

    house.judge.judge = looking_from_now_on  # type: ignore[method-assign]
    await house.say("go", "m1")
    await look.reached.wait()
    await house.conversations.abort(house.key)
    await house.settled()
    assert house.toolbox.ran == []
    entry = journalled(house)
    assert entry is not None
    assert entry.outcome is not None
    assert entry.outcome.status is OutcomeStatus.INTERRUPTED
    assert len(house.seen(seen.ToolReturned)) == 1
    assert [event.stop_reason for event in house.events if isinstance(event, seen.TurnFinished)] == [
        StopReason.CANCELLED
    ]
