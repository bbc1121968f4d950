"""The calls of a step: which run, in which order, and what the model reads of each."""

from lodger_daemon.models.contract import (
    FinishReason,
    StepEnded,
    ToolCallChunk,
    Usage,
)
from lodger_daemon.turns.core import events as seen
from lodger_tools.toolbox_contract import Scheduling, ToolDescription, ToolOutcome
from support.turn_parts import SCHEMA, Gate, House, calls, says
from support.turn_reading import results


async def test_a_call_cut_at_the_token_limit_says_so_and_does_not_run(house: House) -> None:
    await house.start()
    cut = ToolCallChunk(0, "c1", "Bash", '{"command": "rm -rf bui')
    house.models.play([cut, StepEnded(FinishReason.LENGTH, Usage())], says("shorter"))
    await house.say("go", "m1")
    await house.settled()
    [(_, text, is_error)] = results(house.models.requests[1])
    assert is_error
    assert "token limit" in text
    assert house.toolbox.ran == []


async def test_broken_and_unknown_calls_become_results_that_say_so(house: House) -> None:
    await house.start()
    broken = ToolCallChunk(0, "c1", "Bash", "{broken")
    unknown = ToolCallChunk(1, "c2", "Teleport", "{}")
    nameless = ToolCallChunk(2, "c3", None, "{}")
    house.models.play([broken, unknown, nameless, StepEnded(FinishReason.TOOL_CALLS, Usage())], says("sorry"))
    await house.say("go", "m1")
    await house.settled()
    texts = [text for _, text, _ in results(house.models.requests[1])]
    assert texts[0] == "The arguments are not JSON."
    assert "no tool named Teleport" in texts[1]
    assert "names no tool" in texts[2]


async def test_a_reader_pair_overlaps_and_a_writer_waits(house: House) -> None:
    await house.start()
    first, second = Gate(), Gate()
    house.toolbox.gates.update({"r1": first, "r2": second})
    reads = calls("r1", "r2", name="Read")[:2]
    write = ToolCallChunk(2, "c3", "Bash", '{"command": "w"}')
    house.models.play([*reads, write, StepEnded(FinishReason.TOOL_CALLS, Usage())], says("done"))
    await house.say("go", "m1")
    await house.until(lambda: first.reached.is_set() and second.reached.is_set())
    second.opened.set()
    await house.until_seen(seen.ToolReturned)
    assert house.toolbox.ran == ["r1", "r2"]
    first.opened.set()
    await house.settled()
    assert house.toolbox.ran == ["r1", "r2", "w"]
    assert [call_id for call_id, _, _ in results(house.models.requests[1])] == ["c1", "c2", "c3"]


async def test_a_lost_box_is_reported_as_unknown(house: House) -> None:
    await house.start()
    house.toolbox.lost.add("risky")
    house.models.play(calls("risky"), says("let me look"))
    await house.say("go", "m1")
    await house.settled()
    [(_, text, is_error)] = results(house.models.requests[1])
    assert is_error
    assert "unknown" in text


async def test_tools_of_clients_are_called_through_them(house: House) -> None:
    await house.start()
    house.external.brought = (ToolDescription("Lamp", "switches", SCHEMA, Scheduling.BARRIER),)
    house.models.play(calls("on", name="Lamp"), says("light"))
    await house.say("light", "m1")
    await house.settled()
    assert house.external.called == [("Lamp", {"command": "on"})]
    assert results(house.models.requests[1]) == [("c1", "client ran Lamp", False)]


async def test_an_allowlist_holds_for_the_turn(house: House) -> None:
    await house.start()
    house.models.play(calls("ls"), says("cannot"))
    await house.say("look", "m1", tool_allowlist=("Read",))
    await house.settled()
    assert [tool.name for tool in house.models.requests[0].tools] == ["Read"]
    assert house.toolbox.ran == []


async def test_running_output_is_shown_at_most_every_tenth_of_a_second(house: House) -> None:
    await house.start()
    house.toolbox.outputs["chatty"] = tuple(f"line {n}" for n in range(50))
    house.models.play(calls("chatty"), says("done"))
    await house.say("go", "m1")
    await house.settled()
    assert len(house.seen(seen.ToolOutput)) == 1


async def test_error_results_stay_errors(house: House) -> None:
    await house.start()
    house.toolbox.outcomes["bad"] = ToolOutcome("error", "exit 1")
    house.models.play(calls("bad"), says("oh"))
    await house.say("go", "m1")
    await house.settled()
    assert results(house.models.requests[1]) == [("c1", "exit 1", True)]


async def test_a_model_may_use_one_call_id_in_every_step(house: House) -> None:
    await house.start()
    house.models.play(calls("one"), calls("two"), says("done"))
    await house.say("go", "m1")
    await house.settled()
    assert results(house.models.requests[2]) == [("c1", "ran one", False), ("c1-2", "ran two", False)]
