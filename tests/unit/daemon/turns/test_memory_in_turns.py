"""Memory within turns: the first clone, news of it, and what the agent commits."""

import pytest

from lodger_daemon.memory.contract import AgentCard, ImportReport
from lodger_daemon.models.contract import (
    FailureKind,
    ModelFailure,
    UserMessage,
)
from lodger_daemon.turns import preparing
from lodger_daemon.turns.core import events as seen
from lodger_daemon.turns.core.stop_reasons import StopReason
from lodger_tools.permissions.core.modes import Mode
from support.turn_parts import Gate, House, calls, says
from support.turn_reading import finished, results


async def test_a_slow_first_clone_is_told_of_and_can_be_stopped(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "TELL_OF_MEMORY_AFTER_S", 0.01)
    cloning = Gate()

    async def prepare(*_: object) -> AgentCard:
        await cloning.wait()
        return AgentCard("slow")

    monkeypatch.setattr(house.memory, "prepare", prepare)
    key = await house.start()
    await house.say("one", "m1")
    await house.until(lambda: preparing.FETCHING_MEMORY in [str(getattr(e, "message", "")) for e in house.events])
    assert await house.conversations.abort(key)
    await house.settled()
    assert finished(house) == [(StopReason.CANCELLED, None)]
    cloning.opened.set()
    await house.say("two", "m2")
    await house.settled()
    assert finished(house)[1:] == [(StopReason.END_TURN, None)]


async def test_memory_news_is_announced_once_admitted_and_repeated_until_then(house: House) -> None:
    await house.start()
    await house.say("one", "m1")
    await house.settled()
    house.memory.head, house.memory.news = "commit-2", "The person now likes coffee."
    house.models.play([ModelFailure(FailureKind.SERVER, "500")], says("I see"))
    await house.say("two", "m2")
    await house.until_seen(seen.RetryAnnounced)
    await house.until(lambda: house.clock.sleeping > 0)
    house.clock.advance(5)
    await house.settled()
    assert "coffee" in str(house.models.requests[1].messages[-1])
    assert "coffee" in str(house.models.requests[2].messages[-1])
    await house.say("three", "m3")
    await house.settled()
    last = house.models.requests[3].messages
    assert "coffee" not in str(last[-1])
    assert sum("coffee" in str(m) for m in last) == 1
    assert last[0] == house.models.requests[0].messages[0]


async def test_what_the_agent_committed_joins_the_result_and_is_no_news(house: House) -> None:
    await house.start()
    house.memory.reports.append(ImportReport(True, "commit-2", "Committed to memory."))
    house.memory.news = "should not be told"
    house.models.play(calls("git commit"), says("kept"))
    await house.say("remember", "m1")
    await house.settled()
    [(_, text, _)] = results(house.models.requests[1])
    assert text == "ran git commit\n\nCommitted to memory."
    await house.say("next", "m2")
    await house.settled()
    assert "should not be told" not in str(house.models.requests[2])


async def test_reminders_come_on_change_only(house: House) -> None:
    key = await house.start()
    await house.say("one", "m1")
    await house.settled()
    await house.say("two", "m2")
    await house.settled()
    await house.conversations.change_state(key, Mode.UNRESTRICTED, None)
    await house.say("three", "m3")
    await house.settled()
    last = [m for m in house.models.requests[2].messages if isinstance(m, UserMessage)]
    reminders = [[str(p["text"]) for p in m.parts if str(p["text"]).startswith("<reminder")] for m in last]
    assert [len(texts) for texts in reminders] == [3, 0, 1]
    assert "unrestricted" in reminders[2][0]
