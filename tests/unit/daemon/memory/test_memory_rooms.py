"""Memory through its public seam, with real git."""

from dataclasses import replace
from pathlib import Path

import pytest

from lodger_daemon.identity import AgentId
from lodger_daemon.memory.contract import ImportReport, SyncOutcome
from lodger_daemon.memory.errors import MemoryUnavailable
from lodger_daemon.memory.published import CHECKOUT, MAIN, REMOTE
from support.git_host_server import RunningHost
from support.memory_machines import AGENT, CARD, Machine, note, running_machine
from support.plain_boxes import agent_git


async def test_new_memory_stands_in_both_repositories(tmp_path: Path) -> None:
    async with running_machine(tmp_path / "a") as one:
        assert await one.memory.prepare(AGENT, None) == CARD
        head = one.published.head()
        assert head == one.published.ref(CHECKOUT) == agent_git(one.checkout, "rev-parse", "main")
        assert agent_git(one.checkout, "status", "--porcelain") == ""
        compiled = await one.memory.compiled(AGENT)
        assert compiled.standing == head
        assert "I am Ada. A careful helper." in compiled.text
        assert "---" not in compiled.text
        assert compiled == await one.memory.compiled(AGENT)
        assert one.fsck() == ""


async def test_without_card_and_remote_there_is_no_memory(tmp_path: Path) -> None:
    async with running_machine(tmp_path / "a", founded=False) as one:
        with pytest.raises(MemoryUnavailable):
            await one.memory.prepare(AGENT, None)


async def test_import_publishes_and_says_so(tmp_path: Path) -> None:
    async with running_machine(tmp_path / "a") as one:
        before = one.published.head()
        nothing = await one.bring_in()
        assert (nothing.moved, nothing.text) == (False, "")
        commit = one.commit("fact.md", note("The key is under the stone.", "fact"))
        report = await one.bring_in()
        assert (report.moved, report.head) == (True, commit)
        assert "published" in report.text
        head, summary = await one.memory.changed_since(AGENT, before)
        assert head == commit
        assert "new: fact.md" in summary
        assert "+The key is under the stone." in summary
        assert "under the stone" in (await one.memory.compiled(AGENT)).text
        assert one.fsck() == ""


async def test_invalid_commit_is_not_published_until_mended(tmp_path: Path) -> None:
    async with running_machine(tmp_path / "a") as one:
        before = one.published.head()
        (one.checkout / "link.md").symlink_to("/etc/passwd")
        agent_git(one.checkout, "add", "-A")
        agent_git(one.checkout, "commit", "-q", "--no-verify", "-m", "a link")
        report = await one.bring_in()
        assert (report.moved, report.head) == (False, before)
        assert "symbolic link" in report.text
        assert any("symbolic link" in text for text in one.memory.reminders(AGENT))
        assert (await one.end_turn()).outcome is SyncOutcome.INVALID
        again = await one.bring_in()
        assert again.text == ""
        (one.checkout / "link.md").unlink()
        one.commit("good.md", note("good"))
        mended = await one.bring_in()
        assert mended.moved
        assert "one commit" in mended.text
        assert one.memory.reminders(AGENT) == ()
        assert (await one.end_turn()).outcome is SyncOutcome.SKIPPED
        # The checkout was moved to the joined commit, with the same content.
        assert agent_git(one.checkout, "rev-parse", "main") == one.published.head()
        assert agent_git(one.checkout, "status", "--porcelain") == ""
        later = one.commit("more.md", note("more"))
        assert (await one.bring_in()).head == later


async def test_read_only_paths_hold(tmp_path: Path) -> None:
    async with running_machine(tmp_path / "a") as one:
        text = (one.checkout / "agent.toml").read_text()
        one.commit("agent.toml", text + 'read_only = ["about-me.md"]\n')
        refused = await one.bring_in()
        assert "the person's to say" in refused.text


async def test_branch_going_back_keeps_published(tmp_path: Path) -> None:
    async with running_machine(tmp_path / "a") as one:
        commit = one.commit("fact.md", note("fact"))
        await one.bring_in()
        agent_git(one.checkout, "reset", "-q", "--hard", "HEAD~1")
        assert (await one.bring_in()).head == commit
        await one.end_turn()
        assert agent_git(one.checkout, "rev-parse", "main") == commit


async def test_lost_checkout_is_made_again(tmp_path: Path) -> None:
    async with running_machine(tmp_path / "a") as one:
        commit = one.commit("fact.md", note("fact"))
        await one.bring_in()
        agent_git(one.checkout, "rev-parse", "HEAD")
        (one.checkout / ".git").rename(tmp_path / "gone")
        for path in one.checkout.iterdir():
            path.unlink()
        report = await one.bring_in()
        assert "made again" in report.text
        assert agent_git(one.checkout, "rev-parse", "main") == commit


async def test_a_box_that_told_the_head_is_asked_only_where_that_is_news(tmp_path: Path) -> None:
    async with running_machine(tmp_path) as one:
        commit = one.commit("fact.md", note("blue"))
        assert (await one.bring_in(commit)).moved
        one.boxes.broken = True
        assert await one.bring_in(commit) == ImportReport(False, commit, "", commit)
        assert "the box is gone" in (await one.bring_in("a" * 40)).text
        assert "the box is gone" in (await one.bring_in()).text


async def test_a_head_that_was_told_late_hides_no_commit_and_keeps_no_fault(tmp_path: Path) -> None:
    async with running_machine(tmp_path) as one:
        seen = agent_git(one.checkout, "rev-parse", "HEAD")
        one.commit("fact.md", "no front matter\n")
        assert not (await one.bring_in()).moved
        # As a conversation is told whose call ended before that commit was made: its fault is not over.
        await one.bring_in(seen)
        assert one.memory.repository(AGENT, None).room.state.invalid
        agent_git(one.checkout, "reset", "-q", "--hard", seen)
        await one.bring_in(seen)
        assert not one.memory.repository(AGENT, None).room.state.invalid


async def test_turn_goes_on_without_a_box(tmp_path: Path) -> None:
    async with running_machine(tmp_path / "a", founded=False) as one:
        one.boxes.broken = True
        assert await one.memory.prepare(AGENT, CARD) == CARD
        assert "Ada" in (await one.memory.compiled(AGENT)).text
        assert "box" in (await one.bring_in()).text
        one.boxes.broken = False
        await one.bring_in()
        assert agent_git(one.checkout, "rev-parse", "main") == one.published.head()


async def test_commit_travels(tmp_path: Path, hub: RunningHost) -> None:
    async with running_machine(tmp_path / "a", hub) as one:
        commit = one.commit("fact.md", note("fact"))
        await one.bring_in()
        status = await one.end_turn()
        assert (status.outcome, status.head, status.ahead) == (SyncOutcome.PUSHED, commit, 0)
        assert hub.host.head(AGENT) == commit
        assert (await one.end_turn()).outcome is SyncOutcome.CLEAN
        async with running_machine(tmp_path / "b", hub, founded=False) as two:
            assert await two.memory.prepare(AGENT, None) == CARD
            assert (two.checkout / "fact.md").read_text() == note("fact")
            assert two.published.ref(REMOTE) == commit


async def test_turn_end_imports_what_nobody_imported(tmp_path: Path, hub: RunningHost) -> None:
    async with running_machine(tmp_path / "a", hub) as one:
        commit = one.commit("fact.md", note("fact"))
        await one.end_turn()
        assert hub.host.head(AGENT) == commit


async def test_start_pushes_what_was_published_and_never_synced(tmp_path: Path, hub: RunningHost) -> None:
    before = Machine(tmp_path / "one", hub)
    await before.memory.prepare(AGENT, CARD)
    assert (await before.end_turn()).outcome is SyncOutcome.PUSHED
    before.commit("tea.md", note("Green tea."))
    imported = await before.bring_in()
    await before.memory.aclose()  # the daemon dies between the end of a turn and its sync
    after = Machine(tmp_path / "one", hub)
    await after.memory.start()
    settled = await after.memory.settled(AGENT, 60)
    await after.memory.aclose()
    assert (settled.outcome, settled.head, settled.ahead) == (SyncOutcome.PUSHED, imported.head, 0)


async def test_different_files_merge_by_themselves(tmp_path: Path, hub: RunningHost) -> None:
    async with running_machine(tmp_path / "a", hub) as one:
        await one.end_turn()
        async with running_machine(tmp_path / "b", hub) as two:
            one.commit("one.md", note("one"))
            await one.end_turn()
            two.commit("two.md", note("two"))
            assert (await two.end_turn()).outcome is SyncOutcome.PUSHED
            assert (two.checkout / "one.md").exists()
            assert agent_git(two.checkout, "status", "--porcelain") == ""
            one.memory.head_announced(AGENT, hub.host.head(AGENT) or "")
            await one.memory.freshen(AGENT, 20)
            heads = {one.published.head(), two.published.head(), hub.host.head(AGENT)}
            assert len(heads) == 1
            assert agent_git(one.checkout, "rev-parse", "main") in heads
            assert (one.fsck(), two.fsck()) == ("", "")


async def test_two_machines_alternate_and_converge(tmp_path: Path, hub: RunningHost) -> None:
    """G7, in turns and at once."""
    async with running_machine(tmp_path / "a", hub) as one:
        await one.end_turn()
        async with running_machine(tmp_path / "b", hub) as two:
            for step in range(3):
                one.commit(f"a{step}.md", note("a"))
                two.commit(f"b{step}.md", note("b"))
                one.memory.turn_ended(AGENT, one.box)
                two.memory.turn_ended(AGENT, two.box)
                ends = {(await made.memory.settled(AGENT, 60)).outcome for made in (one, two)}
                assert ends == {SyncOutcome.PUSHED}
            for made in (one, two, one):
                made.memory.head_announced(AGENT, hub.host.head(AGENT) or "")
                await made.memory.settled(AGENT, 20)
            assert one.published.head() == two.published.head() == hub.host.head(AGENT)
            names = {path.name for path in one.checkout.iterdir()}
            assert {f"{side}{step}.md" for side in "ab" for step in range(3)} <= names


async def test_commit_on_old_base_while_published_moved(tmp_path: Path, hub: RunningHost) -> None:
    async with running_machine(tmp_path / "a", hub) as one:
        await one.end_turn()
        async with running_machine(tmp_path / "b", hub) as two:
            two.boxes.busy_agents.add(AGENT)
            one.commit("one.md", note("one"))
            await one.end_turn()
            two.memory.head_announced(AGENT, hub.host.head(AGENT) or "")
            assert (await two.memory.settled(AGENT, 20)).outcome is SyncOutcome.BUSY
            two.commit("two.md", note("two"))
            assert (await two.bring_in()).moved
            two.boxes.busy_agents.clear()
            await two.end_turn()
            assert {"one.md", "two.md"} <= {path.name for path in two.checkout.iterdir()}
            assert hub.host.head(AGENT) == two.published.head() == agent_git(two.checkout, "rev-parse", "main")


async def test_files_in_the_way_are_not_overwritten(tmp_path: Path, hub: RunningHost) -> None:
    async with running_machine(tmp_path / "a", hub) as one:
        await one.end_turn()
        async with running_machine(tmp_path / "b", hub) as two:
            one.commit("draft.md", note("theirs"))
            await one.end_turn()
            (two.checkout / ".git/info").mkdir(exist_ok=True)
            (two.checkout / ".git/info/exclude").write_text("draft.md\n")
            (two.checkout / "draft.md").write_text("mine, ignored")
            two.memory.head_announced(AGENT, hub.host.head(AGENT) or "")
            status = await two.memory.settled(AGENT, 20)
            assert status.outcome is SyncOutcome.IN_THE_WAY
            assert "draft.md" in status.detail
            assert (two.checkout / "draft.md").read_text() == "mine, ignored"
            assert two.published.head() == hub.host.head(AGENT)


async def test_dirty_is_told_and_left_alone(tmp_path: Path, hub: RunningHost) -> None:
    async with running_machine(tmp_path / "a", hub) as one:
        await one.end_turn()
        (one.checkout / "draft.md").write_text("not yet")
        assert (await one.end_turn()).outcome is SyncOutcome.DIRTY
        assert "draft.md" in one.memory.reminders(AGENT)[0]
        (one.checkout / "draft.md").unlink()
        assert (await one.end_turn()).outcome is SyncOutcome.CLEAN
        assert one.memory.reminders(AGENT) == ()


async def test_server_in_trouble_is_tried_again_and_survived(tmp_path: Path, hub: RunningHost) -> None:
    async with running_machine(tmp_path / "a", hub) as one:
        await one.end_turn()
        one.commit("fact.md", note("fact"))
        hub.faults += [503, 522]
        assert (await one.end_turn()).outcome is SyncOutcome.PUSHED
        assert [0.25 <= wait <= 1.0 for wait in one.clock.waits if wait < 2.5] == [True, True]
        commit = one.commit("fact2.md", note("fact"))
        hub.faults += [500] * 3
        status = await one.end_turn()
        assert (status.outcome, status.ahead) == (SyncOutcome.PUSH_FAILED, 1)
        stored = replace(one.memory.repository(AGENT, None).room.state)
        async with running_machine(tmp_path / "a", hub) as restarted:
            assert restarted.memory.repository(AGENT, None).room.state == stored
            await restarted.memory.start()
            await restarted.memory.settled(AGENT, 20)
            assert hub.host.head(AGENT) == commit


async def test_heads_of_agents_that_are_not_here_are_not_kept(tmp_path: Path, hub: RunningHost) -> None:
    """A hub may announce any number of names."""
    async with running_machine(tmp_path / "a", hub) as one:
        for number in range(3):
            one.memory.head_announced(AgentId(f"agent-{number}"), "0" * 40)
        assert set(one.memory._agents) == {AGENT}


async def test_rewritten_remote_is_not_followed(tmp_path: Path, hub: RunningHost) -> None:
    """G3."""
    async with running_machine(tmp_path / "a", hub) as one:
        ours = one.commit("fact.md", note("fact"))
        await one.end_turn()
        bare = hub.host._repositories.path(AGENT)
        async with running_machine(tmp_path / "other", founded=False) as other:
            # Another card: two memories founded alike in one second are one and the same commit.
            await other.memory.prepare(AGENT, replace(CARD, description="Of somebody else."))
            foreign = other.published.head()
            agent_git(bare, "fetch", "-q", str(other.published.repository), f"+{MAIN}:{MAIN}")
        assert hub.host.head(AGENT) == foreign
        one.memory.head_announced(AGENT, foreign or "")
        status = await one.memory.settled(AGENT, 20)
        assert (status.outcome, status.head) == (SyncOutcome.CONFLICT, ours)
        refs = one.published.git.line("for-each-ref", "--format=%(objectname)", "refs/lodger/rescue").split()
        assert set(refs) == {ours, foreign}
        assert "Tell the person" in one.memory.reminders(AGENT)[0]
        one.commit("fact2.md", note("fact"))
        assert (await one.end_turn()).outcome is SyncOutcome.CONFLICT
        again = one.published.git.line("for-each-ref", "--format=%(objectname)", "refs/lodger/rescue").split()
        assert again == refs
        assert hub.host.head(AGENT) == foreign


async def test_memory_made_offline_follows_the_remote_it_meets(tmp_path: Path, hub: RunningHost) -> None:
    async with running_machine(tmp_path / "a", hub) as one:
        head = one.commit("fact.md", note("fact"))
        await one.end_turn()
        hub.faults += [503]
        async with running_machine(tmp_path / "b", hub, founded=False) as two:
            await two.memory.prepare(AGENT, replace(CARD, description="Made while the hub was away."))
            made_here = two.published.head()
            assert made_here != head
            await two.end_turn()
            assert two.published.head() == hub.host.head(AGENT) == head
            assert two.published.git.line("for-each-ref", "--format=%(objectname)", "refs/lodger/rescue") == made_here
            assert (two.checkout / "fact.md").exists()


async def test_credential_stands_nowhere(tmp_path: Path, hub: RunningHost) -> None:
    """G5."""
    from support.git_host_server import TOKEN

    async with running_machine(tmp_path / "a", hub) as one:
        one.commit("fact.md", note("fact"))
        await one.end_turn()
        hub.faults += [403]
        one.commit("fact2.md", note("fact"))
        status = await one.end_turn()
        assert status.outcome is SyncOutcome.PUSH_FAILED
        assert TOKEN not in status.detail
        for path in (tmp_path / "a").rglob("*"):
            if path.is_file():
                assert TOKEN.encode() not in path.read_bytes(), path


async def test_a_memory_had_from_the_hub_is_level_with_it_at_once_and_after_a_start(
    tmp_path: Path, hub: RunningHost
) -> None:
    async with running_machine(tmp_path / "a", hub) as one:
        await one.end_turn()
    async with running_machine(tmp_path / "b", hub, founded=False) as two:
        await two.memory.prepare(AGENT, None)
        status = two.memory.status(AGENT)
        assert (status.outcome, status.at is None) == (SyncOutcome.CLEAN, False)
        level_at = two.memory.last_level_at()
        assert level_at is not None
    async with running_machine(tmp_path / "b", hub, founded=False) as again:
        await again.memory.start()
        assert again.memory.last_level_at() == level_at
