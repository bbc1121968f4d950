"""Questions over a real database: durable before they are shown, one effect, an end in time."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from lodger_daemon.identity import QuestionId, ToolCallId
from lodger_daemon.questions.core.rules import DEFAULT_LIMIT_S, QuestionStatus, Settlement
from lodger_daemon.questions.questions import QuestionBook
from lodger_daemon.store import question_rows
from lodger_daemon.store.errors import StateConflict
from lodger_daemon.turns.contract import Allow, Deny
from lodger_daemon.turns.core.events import FilePreview, PermissionSuggestion, QuestionAsked
from support.store_rows import CALL, KEY, NOW, OTHER_KEY, RUN, HandClock, open_database, start_run

QUESTION = QuestionAsked(
    question_id=QuestionId("perm-call-1"),
    run_id=RUN,
    tool_call_id=CALL.tool_call_id,
    tool_name="Bash",
    input={"command": "ls"},
    suggestions=(PermissionSuggestion("s1", "Allow ls"),),
    previews=(FilePreview("a.txt", ({"h": 1},)), FilePreview("b.bin", None, "binary")),
    reason="outside",
)
ARGUMENTS = {"command": "ls"}
SHOWN = replace(QUESTION, expires_at=NOW + DEFAULT_LIMIT_S)


async def test_a_question_survives_a_restart_whole(tmp_path: Path) -> None:
    clock = HandClock()
    database = open_database(tmp_path, clock)
    await start_run(database)
    assert await QuestionBook(database, clock).ask(KEY, QUESTION, ARGUMENTS) == SHOWN
    await database.aclose()
    again = open_database(tmp_path, clock)
    book = QuestionBook(again, clock)
    assert [question.asked for question in await book.load()] == [SHOWN]
    assert book.pending(KEY) == (SHOWN,)
    assert book.pending(OTHER_KEY) == ()
    assert book.next_expiry_s() == DEFAULT_LIMIT_S
    await again.aclose()


async def test_one_effect_however_often_it_is_answered(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    book = QuestionBook(database, HandClock())
    await start_run(database)
    await book.ask(KEY, QUESTION, ARGUMENTS)
    answers = [Allow("yes", {"command": "ls -a"}, ("s1",)), Deny("no"), Allow()]
    results = await asyncio.gather(*(book.settle(KEY, QUESTION.question_id, answer) for answer in answers))
    assert [result is not None for result in results] == [True, False, False]
    settlement = book.settlement(CALL)
    assert results[0] is not None
    assert settlement == results[0].settlement
    assert settlement is not None
    assert (settlement.status, settlement.answer) == (QuestionStatus.ALLOWED, answers[0])
    assert book.permits(CALL, "Bash", {"command": "ls -a"})
    assert not book.permits(CALL, "Bash", {"command": "ls"})
    assert book.pending(KEY) == ()
    assert book.next_expiry_s() is None
    await database.aclose()


async def test_a_settled_row_is_not_settled_again(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    book = QuestionBook(database, HandClock())
    await start_run(database)
    await book.ask(KEY, QUESTION, ARGUMENTS)
    (stored,) = await database.read(question_rows.open_ones)
    withdrawn = Settlement(QuestionStatus.WITHDRAWN, None, None)

    async def settle() -> bool:
        return await database.write(lambda c: question_rows.settle(c, stored.number, withdrawn, NOW))

    assert [await settle(), await settle()] == [True, False]
    await database.aclose()


async def test_an_answer_is_for_its_own_conversation(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    book = QuestionBook(database, HandClock())
    await start_run(database)
    await book.ask(KEY, QUESTION, ARGUMENTS)
    assert await book.settle(OTHER_KEY, QUESTION.question_id, Allow()) is None
    assert book.settlement(CALL) is None
    assert not book.permits(CALL, "Bash", ARGUMENTS)
    await database.aclose()


async def test_a_call_has_one_open_question_and_may_be_asked_again(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    book = QuestionBook(database, HandClock())
    await start_run(database)
    await book.ask(KEY, QUESTION, ARGUMENTS)
    with pytest.raises(StateConflict, match="open already"):
        await book.ask(KEY, QUESTION, ARGUMENTS)
    assert book.next_expiry_s() == DEFAULT_LIMIT_S
    await book.settle(KEY, QUESTION.question_id, Allow(updated_input={"command": "rm"}))
    await book.ask(KEY, QUESTION, {"command": "rm"})
    assert not book.permits(CALL, "Bash", {"command": "rm"})
    await book.settle(KEY, QUESTION.question_id, Deny("no"))
    assert book.settlement(CALL) == Settlement(QuestionStatus.DENIED, Deny("no"), None)
    await database.aclose()


async def test_a_question_that_could_not_be_stored_leaves_no_limit_behind(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    book = QuestionBook(database, HandClock())
    with pytest.raises(Exception, match="no conversation"):
        await book.ask(KEY, QUESTION, ARGUMENTS)
    assert book.next_expiry_s() is None
    await database.aclose()


async def test_nobody_answers_in_time(tmp_path: Path) -> None:
    clock = HandClock()
    database = open_database(tmp_path)
    book = QuestionBook(database, clock, limit_s=60.0)
    await start_run(database)
    await book.ask(KEY, QUESTION, ARGUMENTS)
    clock.pass_time(59.0)
    assert await book.expire_due() == ()
    assert book.next_expiry_s() == 1.0
    clock.pass_time(1.0)
    (expired,) = await book.expire_due()
    assert expired.settlement == Settlement(QuestionStatus.EXPIRED, None, None)
    assert expired.question.call == CALL
    assert await book.expire_due() == ()
    assert await book.settle(KEY, QUESTION.question_id, Allow()) is None
    await database.aclose()


async def test_r8_a_jump_of_the_wall_clock_expires_nothing(tmp_path: Path) -> None:
    clock = HandClock()
    database = open_database(tmp_path)
    book = QuestionBook(database, clock)
    await start_run(database)
    await book.ask(KEY, QUESTION, ARGUMENTS)
    clock.wall_s += 86_400
    assert await book.expire_due() == ()
    clock.wall_s -= 2 * 86_400
    clock.mono_s += DEFAULT_LIMIT_S
    assert len(await book.expire_due()) == 1
    await database.aclose()


async def test_a_cancelled_asker_leaves_a_question_that_still_ends(tmp_path: Path) -> None:
    clock = HandClock()
    database = open_database(tmp_path)
    book = QuestionBook(database, clock)
    await start_run(database)
    asker = asyncio.ensure_future(book.ask(KEY, QUESTION, ARGUMENTS))
    await asyncio.sleep(0)
    asker.cancel()
    await asyncio.wait([asker])
    await database.write(lambda connection: None)
    clock.pass_time(DEFAULT_LIMIT_S)
    assert len(await book.expire_due()) == len(book.pending(KEY)) + 1
    await database.aclose()


async def test_an_abort_withdraws_what_is_open_in_that_conversation(tmp_path: Path) -> None:
    database = open_database(tmp_path)
    book = QuestionBook(database, HandClock())
    await start_run(database)
    second = replace(QUESTION, question_id=QuestionId("perm-2"), tool_call_id=ToolCallId("call-2"))
    await book.ask(KEY, QUESTION, ARGUMENTS)
    await book.ask(KEY, second, ARGUMENTS)
    assert await book.withdraw(OTHER_KEY) == ()
    withdrawn = await book.withdraw(KEY)
    assert [one.question.asked.question_id for one in withdrawn] == ["perm-call-1", "perm-2"]
    assert {one.settlement.status for one in withdrawn} == {QuestionStatus.WITHDRAWN}
    assert await book.withdraw(KEY) == ()
    await database.aclose()
