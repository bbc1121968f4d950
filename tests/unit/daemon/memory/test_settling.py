"""A person settles what two machines do not agree on, path by path or as a whole. Real git on both sides."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from lodger_daemon.memory.contract import SyncOutcome
from lodger_daemon.memory.core.sync_state import Conflict
from lodger_daemon.memory.core.wanted_paths import BadRequest
from lodger_daemon.memory.published import REMOTE
from lodger_daemon.memory.settling import Decision, NothingToSettle, NotSettled, Settled, Side, Whole
from support.git_host_server import RunningHost
from support.memory_conflicts import apart, heard, in_order, on_hub
from support.memory_machines import AGENT, CARD, Machine, note
from support.plain_boxes import agent_git

FACT = ("fact.md", note("green"), note("red"))
PLACE = ("place.md", note("Rome"), note("Oslo"))
ELSEWHERE = ("-c", "user.name=elsewhere", "-c", "user.email=elsewhere@example.org")


async def settle(machine: Machine, decision: Decision) -> Settled:
    result = await machine.memory.settle(AGENT, decision)
    assert isinstance(result, Settled), result
    await machine.memory.settled(AGENT, 30)
    return result


def everything(machine: Machine) -> set[str]:
    """All commits that some ref keeps."""
    return set(machine.published.git.line("rev-list", "--all").split())


def conflict_of(machine: Machine) -> Conflict:
    conflict = machine.memory.conflict(AGENT)
    assert conflict is not None
    return conflict


@pytest.mark.parametrize("side", Side)
async def test_one_side_of_all_paths(tmp_path: Path, hub: RunningHost, side: Side) -> None:
    async with apart(tmp_path, hub, FACT, PLACE) as (one, two):
        before = everything(two)
        assert (await settle(two, Decision(rest=side))).left == ()
        wanted = ("red", "Oslo") if side is Side.OURS else ("green", "Rome")
        assert [word in on_hub(hub, path) for word, path in zip(wanted, ("fact.md", "place.md"), strict=True)] == [
            True,
            True,
        ]
        assert two.memory.reminders(AGENT) == ()
        assert two.memory.conflict(AGENT) is None
        assert await heard(one, hub) is SyncOutcome.CLEAN
        assert wanted[0] in (one.checkout / "fact.md").read_text()
        assert before <= everything(two)
        in_order(one, two)


async def test_paths_are_settled_one_by_one_and_what_is_settled_moves(tmp_path: Path, hub: RunningHost) -> None:
    async with apart(tmp_path, hub, FACT, PLACE) as (one, two):
        before = everything(two)
        assert (await settle(two, Decision({"fact.md": Side.OURS}))).left == ("place.md",)
        assert "red" in on_hub(hub, "fact.md")
        assert "Rome" in on_hub(hub, "place.md")
        assert (two.checkout / "place.md").read_text() == note("Oslo")
        assert conflict_of(two).paths == ("place.md",)
        assert await heard(one, hub) is SyncOutcome.CLEAN
        both = note("Rome, then Oslo").encode()
        assert (await settle(two, Decision({"place.md": both}))).left == ()
        assert "Rome, then Oslo" in on_hub(hub, "place.md")
        assert before <= everything(two)
        assert await heard(one, hub) is SyncOutcome.CLEAN
        assert (one.checkout / "place.md").read_text() == (two.checkout / "place.md").read_text()
        in_order(one, two)


async def test_what_the_agent_wrote_of_them_already_stays(tmp_path: Path, hub: RunningHost) -> None:
    async with apart(tmp_path, hub, FACT, PLACE) as (one, two):
        two.commit("fact.md", note("both colours"))
        assert (await two.end_turn()).outcome is SyncOutcome.CONFLICT
        assert (await settle(two, Decision(rest=Side.THEIRS))).left == ()
        assert "both colours" in on_hub(hub, "fact.md")
        assert "Rome" in on_hub(hub, "place.md")
        in_order(one, two)


@pytest.mark.parametrize("side", Side)
@pytest.mark.parametrize("deleted_here", [True, False])
async def test_deleted_on_one_side(tmp_path: Path, hub: RunningHost, side: Side, deleted_here: bool) -> None:
    change = ("fact.md", note("green"), None) if deleted_here else ("fact.md", None, note("red"))
    async with apart(tmp_path, hub, change) as (one, two):
        await settle(two, Decision(rest=side))
        there = (side is Side.OURS) is not deleted_here
        assert ("fact.md" in agent_git(hub.host._repositories.path(AGENT), "ls-tree", "--name-only", "main")) is there
        assert (two.checkout / "fact.md").exists() is there
        in_order(one, two)


async def test_commits_of_the_agent_meanwhile_are_kept(tmp_path: Path, hub: RunningHost) -> None:
    """They stand on the held commit, which partly goes."""
    async with apart(tmp_path, hub, FACT, PLACE) as (one, two):
        two.commit("tea.md", note("tea"))
        await settle(two, Decision({"fact.md": Side.THEIRS}))
        two.commit("cake.md", note("cake"))
        await two.end_turn()
        await settle(two, Decision(rest=Side.OURS))
        assert [name in on_hub(hub, f"{name}.md") for name in ("tea", "cake")] == [True, True]
        assert ("green" in on_hub(hub, "fact.md"), "Oslo" in on_hub(hub, "place.md")) == (True, True)
        in_order(one, two)


async def test_what_cannot_be_meant_changes_nothing(tmp_path: Path, hub: RunningHost) -> None:
    async with apart(tmp_path, hub, FACT) as (_, two):
        head = two.published.head()
        for decision in (Decision({"other.md": Side.OURS}), Decision(rest=Whole.BOTH)):
            with pytest.raises(BadRequest):
                await two.memory.settle(AGENT, decision)
        assert isinstance(await two.memory.settle(AGENT, Decision({"fact.md": b"no front matter"})), NotSettled)
        assert two.published.head() == head
        await settle(two, Decision(rest=Side.OURS))
        assert await two.memory.settle(AGENT, Decision(rest=Side.OURS)) == NothingToSettle()


@asynccontextmanager
async def rewritten(tmp_path: Path, hub: RunningHost, *, unrelated: bool) -> AsyncIterator[tuple[Machine, Machine]]:
    """Two machines that knew one history, and a hub that has another by now; the first machine has seen it.

    Args:
        unrelated: whether the new history shares nothing with the old one.
    """
    one, two = Machine(tmp_path / "a", hub), Machine(tmp_path / "b", hub)
    try:
        await one.memory.prepare(AGENT, CARD)
        first = one.published.head()
        one.commit("fact.md", note("blue"))
        one.commit("place.md", note("Berlin"))
        await one.end_turn()
        await two.memory.prepare(AGENT, None)
        there, work = hub.host._repositories.path(AGENT), tmp_path / "work"
        agent_git(tmp_path, "clone", "-q", str(there), str(work))
        agent_git(work, "checkout", "-q", *(("--orphan", "new") if unrelated else ("-b", "new", str(first))))
        (work / "fact.md").write_text(note("violet"))
        (work / "sea.md").write_text(note("salty"))
        agent_git(work, "add", "-A")
        agent_git(work, *ELSEWHERE, "commit", "-q", "-m", "from elsewhere")
        agent_git(there, "fetch", "-q", str(work), "+new:main")
        one.commit("tea.md", note("tea"))
        assert (await one.end_turn()).outcome is SyncOutcome.CONFLICT
        assert conflict_of(one).rewritten
        yield one, two
    finally:
        await one.memory.aclose()
        await two.memory.aclose()


@pytest.mark.parametrize("unrelated", [True, False])
async def test_theirs_is_followed_and_ours_kept(tmp_path: Path, hub: RunningHost, unrelated: bool) -> None:
    async with rewritten(tmp_path, hub, unrelated=unrelated) as (one, _):
        one.commit("cake.md", note("cake"))
        assert (await one.end_turn()).outcome is SyncOutcome.CONFLICT
        ours, theirs, before = one.published.head(), hub.host.head(AGENT), everything(one)
        await settle(one, Decision(rest=Whole.THEIRS))
        assert one.published.head() == theirs == one.published.ref(REMOTE) == hub.host.head(AGENT)
        assert one.memory.reminders(AGENT) == ()
        assert before <= everything(one)
        assert ours in one.published.git.line("for-each-ref", "--format=%(objectname)", "refs/lodger/rescue").split()
        assert (one.checkout / "sea.md").exists()
        in_order(one)


@pytest.mark.parametrize("unrelated", [True, False])
async def test_both_histories_are_put_together(tmp_path: Path, hub: RunningHost, unrelated: bool) -> None:
    async with rewritten(tmp_path, hub, unrelated=unrelated) as (one, two):
        before = everything(one)
        left = (await settle(one, Decision(rest=Whole.BOTH))).left
        assert left == ("fact.md",)
        assert ("tea" in on_hub(hub, "tea.md"), "Berlin" in on_hub(hub, "place.md")) == (True, True)
        assert ("violet" in on_hub(hub, "fact.md"), "salty" in on_hub(hub, "sea.md")) == (True, True)
        assert "blue" in (one.checkout / "fact.md").read_text()
        assert not conflict_of(one).rewritten
        assert "fact.md" in one.memory.reminders(AGENT)[0]
        # A machine that knows the old history only is not asked again: the new one continues that too.
        assert await heard(two, hub) is SyncOutcome.CLEAN
        await settle(one, Decision(rest=Side.THEIRS))
        assert one.published.head() == one.published.ref(REMOTE) == hub.host.head(AGENT)
        assert before <= everything(one)
        in_order(one, two)


@pytest.mark.parametrize("unrelated", [True, False])
async def test_ours_is_put_on_top_of_both(tmp_path: Path, hub: RunningHost, unrelated: bool) -> None:
    async with rewritten(tmp_path, hub, unrelated=unrelated) as (one, two):
        files = agent_git(one.checkout, "ls-tree", "-r", "--name-only", "main")
        theirs = hub.host.head(AGENT) or ""
        await settle(one, Decision(rest=Whole.OURS))
        assert agent_git(hub.host._repositories.path(AGENT), "ls-tree", "-r", "--name-only", "main") == files
        assert one.published.is_ancestor(theirs, one.published.head() or "")
        assert await heard(two, hub) is SyncOutcome.CLEAN
        in_order(one, two)


async def test_remote_that_went_back_gets_the_rest_again(tmp_path: Path, hub: RunningHost) -> None:
    one = Machine(tmp_path / "a", hub)
    try:
        await one.memory.prepare(AGENT, CARD)
        first = one.published.head()
        one.commit("fact.md", note("blue"))
        await one.end_turn()
        agent_git(hub.host._repositories.path(AGENT), "update-ref", "refs/heads/main", str(first))
        assert await heard(one, hub) is SyncOutcome.CONFLICT
        head = one.published.head()
        await settle(one, Decision(rest=Whole.BOTH))
        assert one.published.head() == head == hub.host.head(AGENT)
        in_order(one)
    finally:
        await one.memory.aclose()


async def test_what_is_held_is_held_again_on_a_history_that_was_replaced(tmp_path: Path, hub: RunningHost) -> None:
    async with apart(tmp_path, hub, FACT) as (_, two):
        there, work = hub.host._repositories.path(AGENT), tmp_path / "work"
        agent_git(tmp_path, "clone", "-q", str(there), str(work))
        agent_git(work, "checkout", "-q", "--orphan", "new")
        agent_git(work, *ELSEWHERE, "commit", "-q", "-m", "all of it anew")
        agent_git(there, "fetch", "-q", str(work), "+new:main")
        assert await heard(two, hub) is SyncOutcome.CONFLICT
        assert conflict_of(two).rewritten
        assert (await settle(two, Decision(rest=Whole.BOTH))).left == ("fact.md",)
        assert "green" in on_hub(hub, "fact.md")
        assert (two.checkout / "fact.md").read_text() == note("red")
        await settle(two, Decision(rest=Side.OURS))
        assert "red" in on_hub(hub, "fact.md")
        in_order(two)


@pytest.mark.parametrize("side", Side)
async def test_commit_that_could_not_be_published(tmp_path: Path, hub: RunningHost, side: Side) -> None:
    """The agent and the person change the same place of one machine at the same time."""
    one = Machine(tmp_path / "a", hub)
    try:
        await one.memory.prepare(AGENT, CARD)
        one.commit("fact.md", note("blue"))
        await one.end_turn()
        one.boxes.busy_agents.add(AGENT)
        await one.memory.change_for_person(AGENT, "fact.md", note("green").encode(), "by hand")
        await one.memory.settled(AGENT, 30)
        one.boxes.busy_agents.clear()
        one.commit("fact.md", note("red"))
        one.commit("tea.md", note("tea"))
        assert (await one.end_turn()).outcome is SyncOutcome.CONFLICT
        assert conflict_of(one).at_import
        await settle(one, Decision(rest=side))
        wanted = "red" if side is Side.OURS else "green"
        assert (wanted in on_hub(hub, "fact.md"), "tea" in on_hub(hub, "tea.md")) == (True, True)
        assert wanted in (one.checkout / "fact.md").read_text()
        assert (await one.end_turn()).outcome in {SyncOutcome.CLEAN, SyncOutcome.PUSHED}
        assert wanted in (one.checkout / "fact.md").read_text()
        assert one.memory.reminders(AGENT) == ()
        in_order(one)
    finally:
        await one.memory.aclose()
