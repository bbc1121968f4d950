"""What a commit says reaches whoever resumes, also when the daemon died before it could tell (ATTACKS R2)."""

from pathlib import Path

from lodger_daemon.turns.core import events as seen
from support.turn_parts import Gate, House, calls, says


async def stored(house: House, kind: type) -> list[seen.ConversationEvent]:
    return [one.event for one in await house.conversations.events_after(house.key, 0) if isinstance(one.event, kind)]


async def test_r2_the_text_of_an_answer_is_kept_with_the_answer(tmp_path: Path) -> None:
    house = House(tmp_path)
    await house.start()
    house.models.play(says("All ", "is ", "well."))
    await house.say("How are you?", "cm-1")
    await house.until_seen(seen.RunStopped)
    await house.crash()
    await house.restart()
    texts = [event.text for event in await stored(house, seen.AssistantText) if isinstance(event, seen.AssistantText)]
    assert "".join(texts) == "All is well."
    assert len(await stored(house, seen.TurnFinished)) == 1
    await house.close()


async def test_r2_a_result_that_no_event_told_of_is_told_after_a_restart(tmp_path: Path) -> None:
    house = House(tmp_path)
    await house.start()
    gate = Gate()
    house.models.play(calls("touch it"), [gate])
    await house.say("Do it", "cm-1")
    await house.until_seen(seen.ToolReturned)
    await gate.reached.wait()
    await house.crash()
    await house.restart(recover=False)
    house.models.play(says("Done."))
    await house.conversations.recover()
    await house.settled()
    for kind in (seen.ToolCallRequested, seen.ToolStarted, seen.ToolEnded, seen.ToolReturned):
        assert len(await stored(house, kind)) == 1, kind
    assert house.toolbox.ran == ["touch it"]
    await house.close()


async def test_r2_results_that_ended_with_an_interrupted_turn_are_told_after_a_restart(tmp_path: Path) -> None:
    house = House(tmp_path)
    await house.start()
    house.toolbox.gates["stay"] = Gate()
    house.models.play(calls("stay", "later"))
    await house.say("Do it", "cm-1")
    await house.until_seen(seen.ToolStarted)
    await house.conversations.abort(house.key)
    await house.until_seen(seen.TurnFinished)
    await house.crash()
    await house.restart()
    returned = [one for one in await stored(house, seen.ToolReturned) if isinstance(one, seen.ToolReturned)]
    assert {one.tool_call_id for one in returned} >= {"c1"}
    assert len(await stored(house, seen.TurnFinished)) == 1
    await house.close()
