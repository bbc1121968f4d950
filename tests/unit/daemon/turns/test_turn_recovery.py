"""A kill at every commit of a turn: nothing acknowledged is lost, nothing is done twice (ATTACKS R1, R3, R4)."""

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lodger_daemon.identity import QuestionId
from lodger_daemon.models.contract import AssistantMessage, ModelRequest, TextChunk, ToolMessage, UserMessage
from lodger_daemon.store.errors import StoreClosed, StoreFull
from lodger_daemon.turns import recovery
from lodger_daemon.turns.contract import Accepted, Allow, Deny, Refused, StartRuntime
from lodger_daemon.turns.core import events as seen
from lodger_daemon.turns.core.stop_reasons import StopReason
from lodger_daemon.turns.desk import Desk, TurnWork
from lodger_tools.permissions.core.verdicts import Allowed
from lodger_tools.toolbox_contract import ToolOutcome
from support.turn_parts import Gate, House, as_kept, calls, message, says

MOST_COMMITS = 14


class Killer:
    """Stops the world at the n-th awaited commit of a daemon, before or after it reaches the disk."""

    def __init__(self, house: House, at: int, after: bool) -> None:
        self.killed = asyncio.Event()
        self.commits = 0
        self._dead: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        write = house.database.write

        async def killing_write(fn: Callable[[sqlite3.Connection], Any]) -> Any:
            self.commits += 1
            if self.killed.is_set():
                await asyncio.shield(self._dead)
            if self.commits == at:
                if after:
                    await write(fn)
                self.killed.set()
                await asyncio.shield(self._dead)
            return await write(fn)

        house.database.write = killing_write  # type: ignore[method-assign]

    def bury(self) -> None:
        if not self._dead.done():
            self._dead.set_exception(StoreClosed())
            self._dead.exception()


async def kill_and_recover(house: House, at: int, after: bool, story: Callable[[House], Any]) -> bool:
    """Play the story until the kill, start a new daemon, let it finish. False when the story ended unharmed."""
    killer = Killer(house, at, after)
    told = asyncio.ensure_future(story(house))
    death = asyncio.ensure_future(killer.killed.wait())
    await asyncio.wait({told, death}, return_when=asyncio.FIRST_COMPLETED)
    was_killed = killer.killed.is_set()
    killer.bury()
    told.cancel()
    death.cancel()
    await asyncio.gather(told, death, return_exceptions=True)
    await house.crash()
    await house.restart()
    return was_killed


def contents(request: ModelRequest) -> list[str]:
    return [str(part["text"]) for m in request.messages if isinstance(m, UserMessage) for part in m.parts]


def assert_valid(request: ModelRequest) -> None:
    """Every call has exactly one result, right after it."""
    open_calls: list[str] = []
    for one in request.messages:
        if isinstance(one, ToolMessage):
            assert one.tool_call_id == open_calls.pop(0)
            continue
        assert not open_calls
        if isinstance(one, AssistantMessage):
            open_calls = [call.tool_call_id for call in one.tool_calls]
    assert not open_calls


async def assert_in_order(house: House, acknowledged: list[str]) -> None:
    """After recovery nothing is left over, and each acknowledged message is in the transcript once and answered."""

    def read(connection: sqlite3.Connection) -> tuple[list[Any], list[Any], list[Any], list[Any]]:
        return (
            connection.execute("SELECT turn_id FROM turns WHERE status = 'active'").fetchall(),
            connection.execute("SELECT run_id FROM runs WHERE status = 'active'").fetchall(),
            connection.execute("SELECT client_message_id, status FROM inbox ORDER BY number").fetchall(),
            connection.execute("SELECT content FROM messages WHERE kind = 'user'").fetchall(),
        )

    turns, runs, inbox, users = await house.database.read(read)
    assert (turns, runs) == ([], [])
    answered = {client_id for client_id, status in inbox if status == "answered"}
    assert set(acknowledged) <= answered
    for client_id, _ in inbox:
        assert sum(f'"{client_id}"' in content for (content,) in users) == 1
    for request in house.models.requests:
        assert_valid(request)


async def assert_each_turn_announced_once(house: House) -> None:
    """Every turn that reached the model has one stored end."""
    stored = await house.conversations.events_after(house.key, 0)
    announced = [e.event.turn_id for e in stored if isinstance(e.event, seen.TurnFinished)]
    turns = await house.database.read(
        lambda connection: connection.execute("SELECT turn_id FROM turns WHERE run_id IS NOT NULL").fetchall()
    )
    assert len(announced) == len(set(announced))
    assert {turn_id for (turn_id,) in turns} <= set(announced)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(1, MOST_COMMITS))
@pytest.mark.parametrize("known", [False, True], ids=["box lost", "box kept"])
async def test_a_kill_at_any_commit_of_a_tool_turn(tmp_path: Path, at: int, after: bool, known: bool) -> None:
    house = House(tmp_path)
    await house.start()
    if known:
        for command in ("one", "two"):
            house.toolbox.collectable[command] = ToolOutcome("success", f"ran {command}")
    acknowledged: list[str] = []
    house.models.play(calls("one", "two"), says("done"), *[says("more") for _ in range(5)])

    async def story(house: House) -> None:
        for client_id in ("m1", "m2"):
            if isinstance(await house.say(f"text of {client_id}", client_id), Accepted):
                acknowledged.append(client_id)  # noqa: PERF401 - what was acknowledged before the kill
        await house.settled()

    try:
        await kill_and_recover(house, at, after, story)
        await house.settled()
        await assert_in_order(house, acknowledged)
        await assert_each_turn_announced_once(house)
        assert len(house.toolbox.ran) == len(set(house.toolbox.ran))
        done = [r for r in house.models.requests if any(isinstance(m, ToolMessage) for m in r.messages)]
        if done:
            texts = {m.tool_call_id: m.text for m in done[-1].messages if isinstance(m, ToolMessage)}
            for call_id, command in (("c1", "one"), ("c2", "two")):
                assert texts[call_id] == f"ran {command}" or "unknown" in texts[call_id]
                assert not (known and "unknown" in texts[call_id])
                if texts[call_id] == f"ran {command}" and not known:
                    assert command in house.toolbox.ran
    finally:
        await house.close()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(1, 9))
@pytest.mark.parametrize("allow", [True, False], ids=["allowed", "denied"])
async def test_a_kill_at_any_commit_around_a_question(tmp_path: Path, at: int, after: bool, allow: bool) -> None:
    house = House(tmp_path)
    key = await house.start()
    house.models.play(calls("ask one"), says("done"), says("more"), says("more"))
    answer = Allow() if allow else Deny("no")
    acknowledged: list[str] = []
    answered: list[bool] = []

    async def story(house: House) -> None:
        if isinstance(await house.say("go", "m1"), Accepted):
            acknowledged.append("m1")
        await house.until_seen(seen.QuestionAsked)
        answered.append(await house.conversations.answer(key, QuestionId("perm-c1"), answer))
        await house.settled()

    try:
        await kill_and_recover(house, at, after, story)
        settle = asyncio.ensure_future(house.settled())
        while not settle.done():
            asked = (await house.conversations.snapshot(key)).questions
            assert not (asked and answered), "an answered question was asked again"
            if asked:
                await house.conversations.answer(key, asked[0].question_id, answer)
            await asyncio.wait({settle}, timeout=0.01)
        await settle
        await assert_in_order(house, acknowledged)
        assert len(house.toolbox.ran) <= (1 if allow else 0)
    finally:
        await house.close()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("at", range(1, 8))
async def test_a_kill_around_an_abort_never_resumes_an_acknowledged_abort(tmp_path: Path, at: int, after: bool) -> None:
    house = House(tmp_path)
    key = await house.start()
    gate = house.toolbox.gates["slow"] = Gate()
    house.models.play(calls("slow", "second"), says("done"), says("more"))
    acknowledged: list[str] = []
    aborted: list[bool] = []

    async def story(house: House) -> None:
        if isinstance(await house.say("go", "m1"), Accepted):
            acknowledged.append("m1")
        await gate.reached.wait()
        aborted.append(await house.conversations.abort(key))
        await house.settled()

    try:
        await kill_and_recover(house, at, after, story)
        gate.opened.set()
        await house.settled()
        await assert_in_order(house, acknowledged)
        if aborted:
            assert len(house.models.requests) == 1
            assert "second" not in house.toolbox.ran
    finally:
        await house.close()


async def test_a_turn_cut_in_mid_stream_goes_on_unattended(tmp_path: Path) -> None:
    house = House(tmp_path)
    await house.start()
    gate = Gate()
    house.models.play([TextChunk("half"), gate], says("whole"))
    await house.say("go", "m1")
    await house.until(gate.reached.is_set)
    [half] = house.seen(seen.AssistantText)
    assert isinstance(half, seen.AssistantText)
    await house.crash()
    await house.restart()
    await house.settled()
    assert [type(m).__name__ for m in house.models.requests[1].messages] == ["SystemMessage", "UserMessage"]
    finished = [e for e in house.events if isinstance(e, seen.TurnFinished)]
    assert [e.stop_reason for e in finished] == [StopReason.END_TURN]
    told = [e for e in house.events if isinstance(e, seen.RunVoided | seen.RunStopped | seen.RetryAnnounced)]
    assert told[:2] == [seen.RunVoided(half.run_id), seen.RunStopped(half.run_id, StopReason.ERROR)]
    assert isinstance(told[2], seen.RetryAnnounced)
    assert (told[2].reason, told[2].run_id) == ("restarted", half.run_id)
    [whole] = house.seen(seen.AssistantText)
    assert isinstance(whole, seen.AssistantText)
    assert whole.otid != half.otid
    await house.close()


async def test_what_is_void_is_told_again_by_a_daemon_whose_forerunner_could_not(tmp_path: Path) -> None:
    house = House(tmp_path)
    await house.start()
    gates = Gate(), Gate()
    house.models.play([TextChunk("half"), gates[0]], [gates[1]], says("whole"))
    await house.say("go", "m1")
    await house.until(gates[0].reached.is_set)
    [half] = house.seen(seen.AssistantText)
    assert isinstance(half, seen.AssistantText)
    await house.crash()
    await house.restart()
    await house.until(gates[1].reached.is_set)
    await house.crash()
    await house.restart()
    await house.settled()
    assert house.seen(seen.RunVoided) == [seen.RunVoided(half.run_id)]
    assert [e.run_id for e in house.events if isinstance(e, seen.RunStopped)] != [half.run_id]
    await house.close()


async def test_one_conversation_that_cannot_be_taken_up_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = House(tmp_path)
    key = await house.start()
    other = (await house.conversations.start_runtime(StartRuntime(agent_id=key.agent_id))).key
    gates = Gate(), Gate()
    house.models.play([TextChunk("a"), gates[0]], [TextChunk("b"), gates[1]], says("whole"))
    await house.say("go", "m1")
    await house.until(gates[0].reached.is_set)
    await house.conversations.submit(other, message("go", "m1"))
    await house.until(gates[1].reached.is_set)
    await house.crash()
    resume = recovery.resume

    def broken(desk: Desk, left: recovery.LeftOver, work: TurnWork) -> object:
        if desk.key == key:
            raise ValueError("damaged")
        return resume(desk, left, work)

    monkeypatch.setattr(recovery, "resume", broken)
    await house.restart()
    await house.conversations.settled(other)
    [request] = house.models.requests[2:]
    assert request.cache_key == house.models.requests[1].cache_key
    assert isinstance(await house.say("still there?", "m2"), Refused)
    await house.close()


async def test_a_call_that_outlived_the_daemon_is_collected_and_can_be_aborted(tmp_path: Path) -> None:
    house = House(tmp_path)
    key = await house.start()
    gate = house.toolbox.gates["slow"] = Gate()
    house.models.play(calls("slow"), says("done"))
    await house.say("go", "m1")
    await house.until(gate.reached.is_set)
    await house.crash()
    waiting = Gate()

    async def collect(request: object) -> None:
        await waiting.wait()

    house.toolbox.collect = collect  # type: ignore[method-assign, assignment]
    await house.restart()
    await house.until(waiting.reached.is_set)
    assert (await house.conversations.snapshot(key)).processing
    assert await house.conversations.abort(key)
    await house.settled()
    assert house.toolbox.ran == ["slow"]
    await house.say("what now", "m2")
    await house.settled()
    texts = [m.text for m in house.models.requests[1].messages if isinstance(m, ToolMessage)]
    assert texts == ["Interrupted by user"]
    await house.close()


async def test_the_queue_and_its_order_survive(tmp_path: Path) -> None:
    house = House(tmp_path)
    key = await house.start()
    gate = Gate()
    house.models.play([TextChunk("x"), gate], says("one"), says("rest"))
    await house.say("one", "m1")
    await house.until(gate.reached.is_set)
    for number in (2, 3):
        await house.conversations.submit(key, message(f"text {number}", f"m{number}", connection_group="a"))
    await house.crash()
    await house.restart()
    await house.settled()
    assert contents(house.models.requests[-1])[-3:] == ["text 2", "\n", "text 3"]
    await assert_in_order(house, ["m1", "m2", "m3"])
    await house.close()


async def test_event_numbers_never_repeat_across_a_crash(tmp_path: Path) -> None:
    house = House(tmp_path)
    key = await house.start()
    await house.say("one", "m1")
    await house.settled()
    before = list(house.numbers)
    await house.crash()
    await house.restart()
    await house.say("two", "m2")
    await house.settled()
    assert sorted(set(house.numbers)) == house.numbers
    assert house.numbers[len(before)] > before[-1]
    stored = await house.conversations.events_after(key, before[-1])
    assert [e.event for e in stored][-len(house.events) :] == [as_kept(event) for event in house.events]
    await house.close()


async def test_a_question_of_an_earlier_daemon_is_shown_again_with_its_limit(tmp_path: Path) -> None:
    house = House(tmp_path)
    key = await house.start()
    house.models.play(calls("ask one"), says("done"))
    await house.say("go", "m1")
    [first] = await house.until_seen(seen.QuestionAsked)
    await house.crash()
    house.clock.advance(60)
    await house.restart()
    [again] = await house.until_seen(seen.QuestionAsked)
    assert again == first
    assert (await house.conversations.snapshot(key)).questions == (first,)
    assert await house.conversations.answer(key, QuestionId("perm-c1"), Allow())
    await house.settled()
    assert house.toolbox.ran == ["ask one"]
    await house.close()


async def test_a_daemon_that_stops_leaves_running_calls_to_the_next(tmp_path: Path) -> None:
    house = House(tmp_path)
    await house.start()
    gate = house.toolbox.gates["slow"] = Gate()
    house.toolbox.lost.add("slow")
    house.models.play(calls("slow"), says("done"))
    await house.say("go", "m1")
    await house.until(gate.reached.is_set)

    async def let_go() -> None:
        # The connection to the box closes under the call, which its toolbox reports as lost.
        gate.opened.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    await house.conversations.aclose(let_go)
    await house.database.aclose()
    house.toolbox.collectable["slow"] = ToolOutcome("success", "it had ended well")
    await house.restart()
    await house.settled()
    texts = [m.text for m in house.models.requests[1].messages if isinstance(m, ToolMessage)]
    assert texts == ["it had ended well"]
    assert house.toolbox.ran == ["slow"]
    await house.close()


async def test_a_full_disk_is_waited_out_and_said(tmp_path: Path) -> None:
    house = House(tmp_path)
    key = await house.start()
    gate = house.toolbox.gates["slow"] = Gate()
    house.models.play(calls("slow"), says("done"))
    await house.say("go", "m1")
    await house.until(gate.reached.is_set)
    write, full = house.database.write, True

    async def full_write(fn: Callable[[sqlite3.Connection], Any]) -> Any:
        if full:
            raise StoreFull(house.database.path)
        return await write(fn)

    house.database.write = full_write  # type: ignore[method-assign]
    refused = await house.conversations.submit(key, message("more", "m2"))
    assert isinstance(refused, Refused)
    gate.opened.set()
    await house.until_seen(seen.StatusNote)
    await house.until(lambda: house.clock.sleeping > 0)
    full = False
    house.clock.advance(2)
    await house.settled()
    await assert_in_order(house, ["m1"])
    assert house.toolbox.ran == ["slow"]
    await house.close()


async def test_a_question_that_needs_no_answer_any_more_makes_way_for_the_next(tmp_path: Path) -> None:
    house = House(tmp_path)
    key = await house.start()
    house.models.play(calls("ask one"), calls("ask two"), says("done"))
    await house.say("go", "m1")
    await house.until_seen(seen.QuestionAsked)
    await house.crash()
    asks, house.judge.judge = house.judge.judge, lambda call, mode: Allowed("a rule was added meanwhile")
    gate = house.toolbox.gates["ask one"] = Gate()
    await house.restart()
    await house.until(gate.reached.is_set)
    house.judge.judge = asks
    gate.opened.set()
    [asked] = await house.until_seen(seen.QuestionAsked)
    assert isinstance(asked, seen.QuestionAsked)
    assert asked.input == {"command": "ask two"}
    await house.conversations.answer(key, QuestionId("perm-c1"), Allow())
    await house.settled()
    assert house.toolbox.ran == ["ask one", "ask two"]
    await house.close()
