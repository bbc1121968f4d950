"""A prompt is compiled from published memory; the checkout, which the agent may leave in any state, has no say."""

from pathlib import Path

import pytest

from lodger_daemon.memory.core.compiled_text import MAX_TREE_LINES
from lodger_daemon.memory.kept_gits import ObjectReader
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


async def test_only_files_that_are_listed_are_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A memory of thousands of files must not delay a prompt; what is not listed is counted."""
    one = Machine(tmp_path / "a", None)
    try:
        await one.memory.prepare(AGENT, CARD)
        for number in range(MAX_TREE_LINES + 100):
            path = one.checkout / "notes" / f"n{number:04}.md"
            path.parent.mkdir(exist_ok=True)
            path.write_text(note("text", f"n{number:04}"))
        one.commit("last.md", note("core", "last"))
        assert (await one.bring_in()).moved
        read: list[str] = []
        reader = one.published.reader

        def reading(oid: str) -> tuple[str, bytes]:
            read.append(oid)
            return ObjectReader.read(reader, oid)

        monkeypatch.setattr(reader, "read", reading)
        text = (await one.memory.compiled(AGENT)).text
        assert "- notes/n0000.md: About n0000" in text
        assert f"- notes/n{MAX_TREE_LINES - 1:04}.md: About" in text
        assert f"n{MAX_TREE_LINES:04}" not in text
        assert "- and 100 more" in text
        assert len(read) < MAX_TREE_LINES + 20
    finally:
        await one.memory.aclose()
