"""A step put together from fragments as providers really send them."""

from lodger_daemon.backends.core.step_assembly import AssembledCall, StepAssembly
from lodger_daemon.identity import ToolCallId
from lodger_daemon.models.contract import FinishReason, ToolCallChunk


def assembled(*chunks: ToolCallChunk, finish: FinishReason = FinishReason.TOOL_CALLS) -> tuple[AssembledCall, ...]:
    step = StepAssembly(finish=finish)
    for chunk in chunks:
        step.add_call_fragment(chunk)
    return step.calls("call-1", lambda text: text.endswith("}"))


def call(call_id: str, name: str, arguments: str, cut: bool = False) -> AssembledCall:
    return AssembledCall(ToolCallId(call_id), name, arguments, cut)


def test_fragments_are_joined_by_index_with_ids_repeated_or_not() -> None:
    assert assembled(
        ToolCallChunk(1, "c2", "Read", '{"a"'),
        ToolCallChunk(0, None, None, '{"b"'),
        ToolCallChunk(0, "c1", "Bash", ":1}"),
        ToolCallChunk(1, "c2", "Read", ":2}"),
    ) == (call("c1", "Bash", '{"b":1}'), call("c2", "Read", '{"a":2}'))


def test_missing_and_repeated_ids_become_ids_of_their_own() -> None:
    assert assembled(
        ToolCallChunk(0, None, "Bash", "{}"),
        ToolCallChunk(1, "c1", "Bash", "{}"),
        ToolCallChunk(2, "c1", "Bash", "{}"),
    ) == (call("call-1-0", "Bash", "{}"), call("c1", "Bash", "{}"), call("c1-2", "Bash", "{}"))


def test_only_the_last_call_of_a_cut_step_is_cut_and_only_if_incomplete() -> None:
    whole, half = ToolCallChunk(0, "c1", "Bash", "{}"), ToolCallChunk(1, "c2", "Bash", '{"a')
    assert [c.cut for c in assembled(whole, half, finish=FinishReason.LENGTH)] == [False, True]
    assert [c.cut for c in assembled(half, whole, finish=FinishReason.LENGTH)] == [False, True]
    assert [c.cut for c in assembled(whole, finish=FinishReason.LENGTH)] == [False]
    assert [c.cut for c in assembled(whole, half)] == [False, False]


def test_an_id_made_for_a_repeated_one_is_not_one_the_model_chose() -> None:
    found = assembled(
        ToolCallChunk(0, "a", "Bash", "{}"),
        ToolCallChunk(1, "a-2", "Bash", '{"command":"ls"}'),
        ToolCallChunk(2, "a", "Bash", '{"command":"rm x"}'),
        ToolCallChunk(3, "a-2-2", "Bash", "{}"),
        ToolCallChunk(4, "a-2", "Bash", "{}"),
    )
    ids = [one.tool_call_id for one in found]
    assert ids[:2] == ["a", "a-2"] and len(set(ids)) == len(ids)
