"""Two machines change the same places: both sides are kept, and everything else goes on moving. Real git."""

from pathlib import Path

import pytest

from lodger_daemon.memory.contract import SyncOutcome
from support.git_host_server import RunningHost
from support.memory_conflicts import apart, heard, in_order, on_hub
from support.memory_machines import AGENT, CARD, Machine, note
from support.plain_boxes import agent_git

FACT = ("fact.md", note("green"), note("red"))


async def test_both_sides_are_kept_and_the_next_commit_there_decides(tmp_path: Path, hub: RunningHost) -> None:
    """G4: the conflict is data; the turn and the checkout are whole."""
    async with apart(tmp_path, hub, FACT) as (one, two):
        theirs = one.published.head()
        assert hub.host.head(AGENT) == theirs
        assert (two.checkout / "fact.md").read_text() == note("red")
        kept = two.published.git.line("for-each-ref", "--format=%(objectname)", "refs/lodger/conflict").split()
        assert len(kept) == 2
        assert kept[1] == theirs
        assert "red" in two.published.git.line("show", f"{kept[0]}:fact.md")
        (reminder,) = two.memory.reminders(AGENT)
        assert "fact.md" in reminder
        assert agent_git(two.checkout, "show", "refs/lodger/theirs:fact.md").strip() == note("green").strip()
        assert (await two.end_turn()).outcome is SyncOutcome.CONFLICT
        assert two.memory.reminders(AGENT) == (reminder,)
        two.commit("fact.md", note("red and green"))
        assert (await two.end_turn()).outcome is SyncOutcome.PUSHED
        assert two.memory.reminders(AGENT) == ()
        assert "red and green" in on_hub(hub, "fact.md")
        assert await heard(one, hub) is SyncOutcome.CLEAN
        assert one.published.head() == two.published.head() == hub.host.head(AGENT)
        in_order(one, two)


async def test_everything_else_goes_on_both_ways(tmp_path: Path, hub: RunningHost) -> None:
    async with apart(tmp_path, hub, FACT) as (one, two):
        (reminder,) = two.memory.reminders(AGENT)
        two.commit("tea.md", note("Green tea."))
        assert (await two.end_turn()).outcome is SyncOutcome.CONFLICT
        assert "Green tea." in on_hub(hub, "tea.md")
        assert "green" in on_hub(hub, "fact.md")
        one.commit("train.md", note("At nine."))
        await one.end_turn()
        assert (one.checkout / "tea.md").exists()
        assert await heard(two, hub) is SyncOutcome.CONFLICT
        assert "At nine." in (two.checkout / "train.md").read_text()
        assert (two.checkout / "fact.md").read_text() == note("red")
        assert two.memory.reminders(AGENT) == (reminder,)
        in_order(one, two)


async def test_commit_without_change_keeps_this_side(tmp_path: Path, hub: RunningHost) -> None:
    async with apart(tmp_path, hub, FACT) as (one, two):
        agent_git(two.checkout, "commit", "-q", "--allow-empty", "-m", "red it is")
        assert (await two.end_turn()).outcome is SyncOutcome.PUSHED
        assert "red" in on_hub(hub, "fact.md")
        assert await heard(one, hub) is SyncOutcome.CLEAN
        assert (one.checkout / "fact.md").read_text() == note("red")
        in_order(one, two)


async def test_other_side_that_changes_again_is_another_conflict(tmp_path: Path, hub: RunningHost) -> None:
    async with apart(tmp_path, hub, FACT) as (one, two):
        before = two.memory.reminders(AGENT)
        one.commit("fact.md", note("violet"))
        await one.end_turn()
        assert await heard(two, hub) is SyncOutcome.CONFLICT
        assert two.memory.reminders(AGENT) != before
        assert "violet" in agent_git(two.checkout, "show", "refs/lodger/theirs:fact.md")
        assert (two.checkout / "fact.md").read_text() == note("red")
        in_order(one, two)


async def test_other_side_that_takes_ours_ends_it(tmp_path: Path, hub: RunningHost) -> None:
    async with apart(tmp_path, hub, FACT) as (one, two):
        one.commit("fact.md", note("red"))
        await one.end_turn()
        assert await heard(two, hub) in {SyncOutcome.CLEAN, SyncOutcome.PUSHED}
        assert two.memory.reminders(AGENT) == ()
        assert two.published.head() == hub.host.head(AGENT)
        in_order(one, two)


async def test_paths_are_decided_one_by_one(tmp_path: Path, hub: RunningHost) -> None:
    place = ("place.md", note("Rome"), note("Oslo"))
    async with apart(tmp_path, hub, FACT, place) as (one, two):
        two.commit("fact.md", note("both colours"))
        assert (await two.end_turn()).outcome is SyncOutcome.CONFLICT
        (reminder,) = two.memory.reminders(AGENT)
        assert "place.md" in reminder
        assert "fact.md" not in reminder
        assert "green" in on_hub(hub, "fact.md")
        two.commit("place.md", note("Rome, then Oslo"))
        assert (await two.end_turn()).outcome is SyncOutcome.PUSHED
        assert "both colours" in on_hub(hub, "fact.md")
        assert "Rome, then Oslo" in on_hub(hub, "place.md")
        in_order(one, two)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(("fact.md", None, note("red")), id="they delete"),
        pytest.param(("fact.md", note("green"), None), id="we delete"),
    ],
)
async def test_deleted_on_one_side(
    tmp_path: Path, hub: RunningHost, change: tuple[str, str | None, str | None]
) -> None:
    async with apart(tmp_path, hub, change) as (one, two):
        path, _, ours = change
        assert (two.checkout / path).exists() is (ours is not None)
        two.commit("tea.md", note("tea"))
        assert (await two.end_turn()).outcome is SyncOutcome.CONFLICT
        assert "tea" in on_hub(hub, "tea.md")
        two.commit(path, note("decided"))
        assert (await two.end_turn()).outcome is SyncOutcome.PUSHED
        assert "decided" in on_hub(hub, path)
        in_order(one, two)


async def test_lost_state_picks_no_side(tmp_path: Path, hub: RunningHost) -> None:
    """What is held stands in the repository; the state file only says it in words."""
    async with apart(tmp_path, hub, FACT) as (_, two):
        theirs = hub.host.head(AGENT)
        await two.memory.aclose()
        (two.published.folder / "sync.json").unlink()
        again = Machine(tmp_path / "b", hub)
        try:
            again.commit("tea.md", note("tea"))
            assert (await again.end_turn()).outcome is SyncOutcome.CONFLICT
            assert "fact.md" in again.memory.reminders(AGENT)[0]
            assert "green" in on_hub(hub, "fact.md")
            assert "tea" in on_hub(hub, "tea.md")
            assert again.published.is_ancestor(theirs or "", again.published.head() or "")
        finally:
            await again.memory.aclose()


async def test_what_a_merge_decided_on_an_old_base_is_not_lost(tmp_path: Path, hub: RunningHost) -> None:
    """Replay leaves merges out, as git rebase does; what one of them says beyond its parents is kept."""
    one, two = Machine(tmp_path / "a", hub), Machine(tmp_path / "b", hub)
    try:
        await one.memory.prepare(AGENT, CARD)
        one.commit("fact.md", note("blue"))
        await one.end_turn()
        await two.memory.prepare(AGENT, None)
        one.commit("train.md", note("At nine."))
        await one.end_turn()
        agent_git(two.checkout, "checkout", "-q", "-b", "side")
        two.commit("fact.md", note("green"))
        agent_git(two.checkout, "checkout", "-q", "main")
        two.commit("fact.md", note("red"))
        agent_git(two.checkout, "merge", "-q", "-X", "ours", "--no-commit", "side")
        two.commit("fact.md", note("red and green"), "both")
        assert (await two.end_turn()).outcome in {SyncOutcome.PUSHED, SyncOutcome.CONFLICT}
        assert "red and green" in (two.checkout / "fact.md").read_text()
        assert (two.checkout / "train.md").exists()
        in_order(one, two)
    finally:
        await one.memory.aclose()
        await two.memory.aclose()


async def test_folder_moved_here_and_filled_there(tmp_path: Path, hub: RunningHost) -> None:
    """Git asks where the new file belongs, at a path that neither side has; for a memory both sides just stay."""
    one, two = Machine(tmp_path / "a", hub), Machine(tmp_path / "b", hub)
    try:
        await one.memory.prepare(AGENT, CARD)
        for name in ("ada", "ben", "cem"):
            one.commit(f"notes/{name}.md", note(f"About {name}."))
        await one.end_turn()
        await two.memory.prepare(AGENT, None)
        one.commit("notes/dora.md", note("Dora is new."))
        await one.end_turn()
        agent_git(two.checkout, "mv", "notes", "people")
        two.commit("tea.md", note("tea"), "notes are people")
        assert (await two.end_turn()).outcome is SyncOutcome.PUSHED
        assert two.memory.reminders(AGENT) == ()
        assert "Dora is new." in on_hub(hub, "notes/dora.md")
        assert "About ben." in on_hub(hub, "people/ben.md")
        in_order(one, two)
    finally:
        await one.memory.aclose()
        await two.memory.aclose()
