"""A limit of what may be spent is a stop with a durable question, before the step it stands in the way of."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lodger_daemon.identity import QuestionId, TurnId
from lodger_daemon.models.contract import FailureKind, ModelFailure, TextChunk, UserMessage
from lodger_daemon.questions.core.rules import DEFAULT_LIMIT_S
from lodger_daemon.spend.core.limits import Limits, SpendLimits
from lodger_daemon.store import spend_rows
from lodger_daemon.turns.contract import Allow, Answer, ConversationError, Deny
from lodger_daemon.turns.core import events as seen
from lodger_daemon.turns.core.own_questions import OwnQuestion
from lodger_daemon.turns.core.stop_reasons import StopReason
from support.turn_parts import Gate, House, calls, says

STEP_TOKENS = 12
"""What each step of the scripted model costs."""


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    one = House(tmp_path)
    yield one
    await one.close()


def limit(house: House, turn: int | None = None, day: int | None = None) -> None:
    house.spend_limits = SpendLimits(turn=Limits(tokens=turn), day=Limits(tokens=day))


def finished(house: House) -> list[StopReason]:
    return [event.stop_reason for event in house.events if isinstance(event, seen.TurnFinished)]


def ends(house: House) -> list[str]:
    return [str(event.error) for event in house.events if isinstance(event, seen.TurnFinished)]


async def asked(house: House, count: int = 1) -> seen.QuestionAsked:
    question = (await house.until_seen(seen.QuestionAsked, count))[-1]
    assert isinstance(question, seen.QuestionAsked)
    return question


async def spent(house: House) -> int:
    def total(connection: sqlite3.Connection) -> int:
        rows = connection.execute("SELECT turn_id FROM turns").fetchall()
        return sum(spend_rows.of_turn(connection, TurnId(turn_id)).tokens for (turn_id,) in rows)

    return await house.database.read(total)


async def at_the_limit(house: House) -> seen.QuestionAsked:
    """In mid-turn: two steps were paid, the third is asked about."""
    limit(house, turn=2 * STEP_TOKENS)
    await house.start()
    house.models.play(calls("one"), calls("two"), says("done"))
    await house.say("go", "m1")
    return await asked(house)


async def test_a_limit_in_mid_turn_asks_and_going_on_goes_on(house: House) -> None:
    question = await at_the_limit(house)
    assert (question.tool_name, len(house.models.requests)) == (OwnQuestion.SPEND, 2)
    assert str(2 * STEP_TOKENS) in question.reason
    snapshot = await house.conversations.snapshot(house.key)
    assert snapshot.questions == (question,)
    assert snapshot.loop.status is seen.LoopStatus.WAITING_ON_APPROVAL
    assert await house.conversations.answer(house.key, question.question_id, Allow())
    assert not await house.conversations.answer(house.key, question.question_id, Allow())
    await house.settled()
    assert finished(house) == [StopReason.END_TURN]
    assert len(house.models.requests) == 3
    assert await spent(house) == 3 * STEP_TOKENS


async def test_a_person_who_stops_ends_the_turn_with_words(house: House) -> None:
    question = await at_the_limit(house)
    await house.conversations.answer(house.key, question.question_id, Deny("enough"))
    await house.settled()
    assert finished(house) == [StopReason.INSUFFICIENT_CREDITS]
    assert question.reason in ends(house)[0]
    assert len(house.models.requests) == 2


async def test_a_limit_nobody_answers_about_ends_the_turn_with_words(house: House) -> None:
    await at_the_limit(house)
    await house.until(lambda: house.clock.sleeping > 0)
    house.clock.advance(DEFAULT_LIMIT_S + 1)
    await house.settled()
    assert finished(house) == [StopReason.INSUFFICIENT_CREDITS]
    assert "nobody answered" in ends(house)[0]


async def test_a_client_that_cannot_answer_is_not_asked(house: House) -> None:
    limit(house, day=STEP_TOKENS)
    await house.start()
    await house.say("one", "m1")
    await house.settled()
    await house.say("two", "m2", can_answer_questions=False)
    await house.settled()
    assert house.seen(seen.QuestionAsked) == []
    assert finished(house) == [StopReason.END_TURN, StopReason.INSUFFICIENT_CREDITS]
    assert "cannot answer" in ends(house)[1]


async def test_a_limit_before_the_first_step_keeps_the_message(house: House) -> None:
    limit(house, day=STEP_TOKENS)
    await house.start()
    await house.say("one", "m1")
    await house.settled()
    await house.say("two", "m2")
    question = await asked(house)
    assert len(house.models.requests) == 1
    await house.conversations.answer(house.key, question.question_id, Allow())
    await house.settled()
    [_, last] = house.models.requests
    users = [str(message.parts) for message in last.messages if isinstance(message, UserMessage)]
    assert ["one" in users[0], "two" in users[1]] == [True, True]
    assert len(users) == 2


@pytest.mark.parametrize("first", [True, False], ids=["before the first step", "in mid-turn"])
@pytest.mark.parametrize("answer", [Allow(), Deny("no")], ids=["go on", "stop"])
async def test_a_question_about_a_limit_survives_a_restart(house: House, first: bool, answer: Answer) -> None:
    if first:
        limit(house, day=STEP_TOKENS)
        await house.start()
        await house.say("earlier", "m0")
        await house.settled()
        await house.say("go", "m1")
        question = await asked(house)
    else:
        question = await at_the_limit(house)
    before = len(house.models.requests)
    await house.crash()
    await house.restart()
    again = await asked(house)
    assert again == question
    await house.conversations.answer(house.key, question.question_id, answer)
    await house.settled()
    stops = isinstance(answer, Deny)
    assert finished(house) == [StopReason.INSUFFICIENT_CREDITS if stops else StopReason.END_TURN]
    assert len(house.models.requests) == before + (0 if stops else 1)


async def test_an_abort_takes_the_question_back(house: House) -> None:
    question = await at_the_limit(house)
    assert await house.conversations.abort(house.key)
    await house.settled()
    assert finished(house) == [StopReason.CANCELLED]
    assert not await house.conversations.answer(house.key, question.question_id, Allow())
    assert house.book.count() == 0


async def test_one_limit_behind_another_is_asked_about_too(house: House) -> None:
    limit(house, turn=STEP_TOKENS, day=STEP_TOKENS)
    await house.start()
    house.models.play(calls("one"), says("done"))
    await house.say("go", "m1")
    first = await asked(house)
    await house.conversations.answer(house.key, first.question_id, Allow())
    second = await asked(house, 2)
    assert second.question_id != first.question_id
    assert len(house.models.requests) == 1
    await house.conversations.answer(house.key, second.question_id, Allow())
    await house.settled()
    assert finished(house) == [StopReason.END_TURN]


async def test_an_answer_with_extras_raises_the_limit_as_the_question_said(house: House) -> None:
    question = await at_the_limit(house)
    odd = Allow(updated_input={"raised_to": 10**9}, suggestion_ids=("save-default",))
    await house.conversations.answer(house.key, question.question_id, odd)
    await house.settled()
    assert finished(house) == [StopReason.END_TURN]
    raised = await house.database.read(
        lambda connection: connection.execute("SELECT raised_to FROM spend_raises").fetchall()
    )
    assert raised == [(4 * STEP_TOKENS,)]


async def test_every_step_is_charged_however_it_ended(house: House) -> None:
    limit(house)
    await house.start()
    gate = Gate()
    broken = [TextChunk("half"), ModelFailure(FailureKind.SERVER, "500")]
    house.models.play([*broken], calls("one"), [TextChunk("x" * 400), gate])
    await house.say("go", "m1")
    await house.until_seen(seen.RetryAnnounced)
    await house.until(lambda: house.clock.sleeping > 0)
    house.clock.advance(5)
    await house.until(gate.reached.is_set)
    await house.conversations.abort(house.key)
    await house.settled()
    rows = await house.database.read(
        lambda connection: connection.execute(
            "SELECT completion_tokens, estimated FROM spend ORDER BY number"
        ).fetchall()
    )
    assert rows == [(1, 1), (2, 0), (100, 1)]


async def test_summaries_are_charged_too_also_one_that_is_stopped(house: House) -> None:
    limit(house)
    key = await house.start()
    for number in range(6):
        house.models.play(says("long answer " * 60))
        await house.say(f"question {number} " + "words " * 60, f"m{number}")
        await house.settled()
    steps = await spent(house)
    gate = Gate()
    house.models.play([TextChunk("x" * 40), gate], says("a summary"))
    compacting = asyncio.ensure_future(house.conversations.compact(key))
    await house.until(gate.reached.is_set)
    assert await house.conversations.abort(key)
    with pytest.raises(ConversationError):
        await compacting
    await house.conversations.compact(key)
    await house.database.write(lambda _: None)
    rows = await house.database.read(
        lambda connection: connection.execute(
            "SELECT completion_tokens, estimated FROM spend WHERE turn_id LIKE 'summary-%' ORDER BY number"
        ).fetchall()
    )
    assert rows == [(10, 1), (2, 0)]
    assert await spent(house) == steps


async def test_an_answer_to_another_question_changes_nothing(house: House) -> None:
    question = await at_the_limit(house)
    assert not await house.conversations.answer(house.key, QuestionId("spend-other"), Allow())
    assert (await house.conversations.snapshot(house.key)).questions == (question,)
    await house.conversations.abort(house.key)
    await house.settled()
