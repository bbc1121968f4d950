"""What the person changes of an agent travels with its memory; what takes much of each prompt is told in time."""

from pathlib import Path

import pytest

from lodger_daemon.memory.contract import AgentCard, SyncOutcome
from lodger_daemon.memory.core.compiled_text import BUDGET_TOKENS, BYTES_PER_TOKEN, fullness_warning
from lodger_tools.validator.limits import DEFAULT_LIMITS
from support.git_host_server import RunningHost
from support.memory_conflicts import in_order
from support.memory_machines import AGENT, CARD, Machine, note, running_machine
from support.plain_boxes import agent_git


async def test_a_changed_card_is_what_the_next_machine_meets(tmp_path: Path, hub: RunningHost) -> None:
    async with running_machine(tmp_path / "a", hub) as one:
        text = (one.checkout / "agent.toml").read_text()
        one.commit("agent.toml", text + 'read_only = ["about-me.md"]\n')
        await one.memory.change_for_person(AGENT, "agent.toml", (text + 'read_only = ["x.md"]\n').encode(), "lock")
        agent_git(one.checkout, "reset", "-q", "--hard", "HEAD~1")
        await one.memory.settled(AGENT, 30)
        await one.memory.follow_card(AGENT, {"name": 'Grace "G" Hopper', "model": "openai/y"})
        assert (await one.memory.settled(AGENT, 30)).outcome is SyncOutcome.PUSHED
        held = AgentCard('Grace "G" Hopper', CARD.description, "openai/y", CARD.toolset)
        assert await one.memory.prepare(AGENT, None) == held
        assert 'read_only = ["x.md"]' in (one.checkout / "agent.toml").read_text()
        two = Machine(tmp_path / "b", hub)
        try:
            assert await two.memory.prepare(AGENT, None) == held
            in_order(one, two)
        finally:
            await two.memory.aclose()


async def test_a_card_that_says_the_same_makes_no_commit(tmp_path: Path) -> None:
    async with running_machine(tmp_path / "a") as one:
        head = one.published.head()
        await one.memory.follow_card(AGENT, {"name": CARD.name, "model": CARD.model or ""})
        await one.memory.follow_card(AGENT, {})
        assert one.published.head() == head


async def test_a_card_that_is_not_valid_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running_machine(tmp_path / "a") as one:
        head = one.published.head()
        await one.memory.follow_card(AGENT, {"name": "x" * 300})
        assert one.published.head() == head
        assert "does not follow" in caplog.text


async def test_a_memory_without_the_file_keeps_its_form(tmp_path: Path) -> None:
    async with running_machine(tmp_path / "a") as one:
        one.commit("agent.toml", None)
        assert (await one.bring_in()).moved
        head = one.published.head()
        await one.memory.follow_card(AGENT, {"name": "Grace"})
        assert one.published.head() == head


async def test_core_memory_is_warned_of_before_it_is_refused(tmp_path: Path) -> None:
    """Below four fifths nothing; then nearly, then over; past the validator's limit the commit is not published."""
    piece = "tea " * 9_500
    async with running_machine(tmp_path / "a") as one:
        one.commit("one.md", note(piece, "one"))
        await one.end_turn()
        assert one.memory.reminders(AGENT) == ()
        one.commit("two.md", note(piece[: len(piece) * 4 // 5], "two"))
        await one.end_turn()
        (nearly,) = one.memory.reminders(AGENT)
        assert "is nearly at its budget" in nearly
        one.commit("people/more.md", note(piece, "more"))
        one.commit("short.md", note("a few words", "short"))
        await one.end_turn()
        assert one.memory.reminders(AGENT) == (nearly,)
        one.commit("three.md", note(piece, "three"))
        await one.end_turn()
        (over,) = one.memory.reminders(AGENT)
        assert "is over its budget" in over
        assert len((await one.memory.compiled(AGENT)).text) > BUDGET_TOKENS * BYTES_PER_TOKEN
        head = one.published.head()
        one.commit("four.md", note(piece, "four"))
        one.commit("five.md", note(piece, "five"))
        assert (await one.bring_in()).moved is False
        assert one.published.head() == head
        agent_git(one.checkout, "rm", "-q", "two.md", "three.md", "four.md", "five.md")
        agent_git(one.checkout, "commit", "-q", "-m", "tidy up")
        await one.end_turn()
        assert one.memory.reminders(AGENT) == ()


async def test_a_full_core_is_known_after_a_start(tmp_path: Path) -> None:
    async with running_machine(tmp_path / "a") as one:
        one.commit("one.md", note("tea " * 18_000, "one"))
        await one.end_turn()
        told = one.memory.reminders(AGENT)
        assert len(told) == 1
    async with running_machine(tmp_path / "a") as again:
        await again.memory.compiled(AGENT)
        assert again.memory.reminders(AGENT) == told


async def test_the_older_layout_has_its_core_in_system(tmp_path: Path) -> None:
    async with running_machine(tmp_path / "a") as one:
        (one.checkout / "MEMORY.md").unlink()
        (one.checkout / "about-me.md").unlink()
        one.commit("system/persona.md", "---\ndescription: who\n---\n" + "tea " * 18_000)
        report = await one.bring_in()
        assert report.moved, report.text
        await one.end_turn()
        assert "is nearly at its budget" in one.memory.reminders(AGENT)[0]
        one.commit("notes.md", "---\ndescription: more\n---\n" + "tea " * 18_000)
        await one.end_turn()
        assert "18,000" in one.memory.reminders(AGENT)[0]


def test_the_warning_leaves_room_before_the_limit() -> None:
    limit = DEFAULT_LIMITS.core_bytes
    warned = [size for size in range(0, limit + 1, 1000) if fullness_warning(size, limit)]
    assert warned[0] == 64_000
    assert warned[-1] == limit == 160_000
    assert len({fullness_warning(size, limit) for size in range(64_000, 68_000, 100)}) == 1
