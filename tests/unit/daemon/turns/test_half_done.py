"""What a client that leaves in mid-command, two at once, or a full disk leave behind: a whole change or nothing."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lodger_daemon.identity import AgentId, ConversationId, ConversationKey, QuestionId
from lodger_daemon.memory.errors import MemoryUnavailable
from lodger_daemon.store.errors import StoreBusy, StoreFull
from lodger_daemon.turns.contract import Accepted, Allow, ConversationError, NewAgent, StartRuntime
from lodger_daemon.turns.core import events as seen
from lodger_daemon.turns.core.events import DeviceStateChanged
from lodger_tools.permissions.core.modes import Mode
from support.patience import LIMIT_S
from support.turn_parts import Gate, House, calls, message, says


async def leave_in_mid_write(house: House, command: Callable[[], Any]) -> None:
    """Cancel a command while its write is on the way: it is committed, but nobody waits for it any more."""
    held = threading.Event()
    house.database.write_soon(lambda _: held.wait(LIMIT_S))
    task = asyncio.ensure_future(command())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not task.done()
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    held.set()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_answer_whose_client_leaves_still_moves_the_turn(house: House) -> None:
    key = await house.start()
    house.models.play(calls("ask a"), says("done"))
    await house.say("go", "m1")
    await house.until_seen(seen.QuestionAsked)
    await leave_in_mid_write(house, lambda: house.conversations.answer(key, QuestionId("perm-c1"), Allow()))
    await house.settled()
    assert house.toolbox.ran == ["ask a"]
    assert [event.outcome for event in house.seen(seen.QuestionSettled)] == ["allowed"]  # type: ignore[attr-defined]


async def test_a_mode_whose_client_leaves_holds_in_memory_as_on_disk(house: House) -> None:
    key = await house.start()
    await leave_in_mid_write(house, lambda: house.conversations.change_state(key, Mode.STRICT, None))
    assert (await house.conversations.snapshot(key)).mode is Mode.STRICT
    await house.crash()
    await house.restart()
    assert (await house.conversations.snapshot(key)).mode is Mode.STRICT


async def test_a_notice_whose_sender_leaves_is_answered(house: House) -> None:
    key = await house.start()
    house.models.play(says("noted"))
    notice = message("a task ended", "n1")
    await leave_in_mid_write(
        house, lambda: house.conversations.submit_notice(key, notice, "task_notification", "task_notification")
    )
    await house.until_seen(seen.TurnFinished)
    await house.settled()
    assert len(house.models.requests) == 1


async def test_changes_of_two_clients_to_one_agent_both_hold(house: House) -> None:
    key = await house.start()
    await asyncio.gather(
        house.conversations.update_agent(key.agent_id, {"name": "Ada"}),
        house.conversations.update_agent(key.agent_id, {"description": "counts"}),
    )
    agent = await house.conversations.get_agent(key.agent_id)
    assert agent is not None
    assert (agent.name, agent.description) == ("Ada", "counts")


async def test_two_that_open_a_conversation_at_once_get_the_same(house: House) -> None:
    key = await house.start()
    other = (await house.conversations.start_runtime(StartRuntime(new_agent=NewAgent()))).key
    house.clock.advance(3600)
    await house.conversations._registry.actor(other)
    assert house.conversations._registry.in_use(key) is not None
    registry = house.conversations._registry
    fresh = ConversationKey(key.agent_id, ConversationId("conv-1"))
    first, second = await asyncio.gather(registry.actor(fresh), registry.actor(fresh))
    assert first is second is registry.in_use(fresh)


async def test_asking_for_agents_that_do_not_exist_leaves_nothing_in_memory(house: House) -> None:
    await house.start()
    registry = house.conversations._registry
    kept = dict(registry._last_used)
    for number in range(5):
        stranger = ConversationKey(AgentId(f"agent-{number}"), ConversationId("default"))
        with pytest.raises(ConversationError):
            await registry.actor(stranger)
    assert registry._last_used == kept


async def test_an_agent_whose_memory_cannot_be_had_is_refused_in_words(house: House) -> None:
    await house.start()
    house.memory.remote = (AgentId("agent-far"),)

    async def unavailable(*_: object) -> None:
        raise MemoryUnavailable("the hub's copy is not valid")

    house.memory.prepare = unavailable  # type: ignore[assignment,method-assign]
    with pytest.raises(ConversationError, match="the hub's copy is not valid"):
        await house.conversations.adopt_agent(AgentId("agent-far"))


async def test_a_clone_goes_on_for_others_when_the_client_that_asked_leaves(house: House) -> None:
    await house.start()
    house.memory.remote = (AgentId("agent-far"),)
    gate, prepare, begun = Gate(), house.memory.prepare, []

    async def slow(*given: Any) -> Any:
        begun.append(given)
        await gate.wait()
        return await prepare(*given)

    house.memory.prepare = slow  # type: ignore[method-assign]
    adopting = asyncio.ensure_future(house.conversations.adopt_agent(AgentId("agent-far")))
    await house.until(gate.reached.is_set)
    adopting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await adopting
    again = asyncio.ensure_future(house.conversations.adopt_agent(AgentId("agent-far")))
    gate.opened.set()
    assert (await again).id == "agent-far"
    assert len(begun) == 1


async def test_a_full_disk_does_not_keep_the_daemon_from_stopping(tmp_path: Path) -> None:
    house = House(tmp_path)
    await house.start()
    gate = house.toolbox.gates["slow"] = Gate()
    house.models.play(calls("slow"))
    await house.say("go", "m1")
    await house.until(gate.reached.is_set)

    async def full_write(fn: Callable[[sqlite3.Connection], Any]) -> Any:
        raise StoreFull(house.database.path)

    house.database.write = full_write  # type: ignore[method-assign]
    gate.opened.set()
    await house.until(lambda: house.clock.sleeping > 0)
    closing = asyncio.ensure_future(house.conversations.aclose())
    await asyncio.sleep(0)
    house.clock.advance(2)
    async with asyncio.timeout(LIMIT_S):
        await closing
    await house.database.aclose()


async def test_a_store_that_cannot_be_read_now_shows_the_queue_as_it_was(house: House) -> None:
    key = await house.start()
    read_now = house.database.read_now

    def failing(_: Callable[[sqlite3.Connection], Any]) -> Any:
        raise StoreFull(house.database.path)

    house.database.read_now = failing  # type: ignore[method-assign,assignment]
    house.models.play(says("hello"))
    assert await house.conversations.submit(key, message("hi", "m1")) == Accepted("started")
    house.database.read_now = read_now  # type: ignore[method-assign]
    await house.settled()


async def test_events_that_could_not_be_stored_for_a_reader_are_stored_later(house: House) -> None:
    key = await house.start()
    log = (await house.conversations._registry.actor(key)).desk.log
    log.publish(DeviceStateChanged())
    write = house.database.write

    async def busy(_: Callable[[sqlite3.Connection], Any]) -> Any:
        raise StoreBusy(house.database.path)

    house.database.write = busy  # type: ignore[method-assign]
    with pytest.raises(StoreBusy):
        await log.after(0, 10)
    house.database.write = write  # type: ignore[method-assign]
    log.publish(DeviceStateChanged())
    assert [event.number for event in await log.after(0, 10)] == house.numbers
