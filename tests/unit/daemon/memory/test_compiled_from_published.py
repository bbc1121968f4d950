"""A prompt is compiled from published memory; the checkout, which the agent may leave in any state, has no say."""

from pathlib import Path

from support.memory_machines import AGENT, CARD, Machine, note


async def test_the_prompt_is_compiled_from_published_memory_and_never_from_the_work_tree(tmp_path: Path) -> None:
    one = Machine(tmp_path / "a", None)
    try:
        await one.memory.prepare(AGENT, CARD)
        before = await one.memory.compiled(AGENT)
        (one.checkout / "unfinished.md").write_text(note("Not committed.", "unfinished"))
        assert await one.memory.compiled(AGENT) == before
        one.commit("secret-plan.md", note("Committed, not published.", "plan"))
        assert await one.memory.compiled(AGENT) == before
        await one.bring_in()
        after = await one.memory.compiled(AGENT)
        assert "Committed, not published." in after.text
        (one.checkout / "secret-plan.md").write_text("gone again")
        assert await one.memory.compiled(AGENT) == after
    finally:
        await one.memory.aclose()
