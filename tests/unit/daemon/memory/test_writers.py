"""Background writers: what they commit is merged over whatever main has become, and nothing of theirs is lost."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lodger_daemon.memory.core.writers import WriterKind, WriterState
from lodger_daemon.memory.errors import WriterRefused, WriterSkip
from lodger_daemon.memory.housekeeping import sweep_at_next
from lodger_daemon.memory.kept_gits import RefChange
from lodger_daemon.memory.published import CHECKOUT, MAIN, Published
from lodger_daemon.memory.remote import MemoryRemote
from lodger_daemon.memory.work_tree_merge import Landed, merge
from support.git_host_server import TOKEN, RunningHost
from support.memory_machines import AGENT, note
from support.plain_boxes import agent_git
from support.writer_machines import WriterMachine, at_rest, make_writers, write_in, writer_machine


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[WriterMachine]:
    async with writer_machine(tmp_path / "machine") as made:
        yield made


def published(here: WriterMachine, path: str) -> str:
    return here.machine.published.git.run("show", f"main:{path}").decode()


def nothing_is_left(here: WriterMachine) -> None:
    assert here.refs() == []
    assert here.folders() == []
    assert here.machine.fsck() == ""


async def test_what_a_writer_committed_goes_over_what_the_agent_committed_meanwhile(here: WriterMachine) -> None:
    opened = await here.open()
    write_in(opened, "learnt.md", note("Likes tea."))
    here.machine.commit("said.md", note("meanwhile"))
    await here.machine.bring_in()
    ended = await here.writers.done(opened.id, "Noted the tea.")
    assert (ended.state, ended.report) == (WriterState.MERGED, "Noted the tea.")
    assert "Likes tea." in published(here, "learnt.md")
    assert "meanwhile" in published(here, "said.md")
    await here.machine.memory.settled(AGENT, 30)
    assert (here.machine.checkout / "learnt.md").read_text() == note("Likes tea.")
    assert opened.ended.is_set()
    nothing_is_left(here)


async def test_notes_that_were_not_committed_count_and_scripts_do_not(here: WriterMachine) -> None:
    opened = await here.open()
    write_in(opened, "helper.py", "print()\n", message=None)
    write_in(opened, "people/ada.md", note("Ada", "ada"), message=None)
    ended = await here.writers.done(opened.id, "done")
    assert ended.state is WriterState.MERGED
    listed = here.machine.published.git.line("ls-tree", "-r", "--name-only", "main").split()
    assert "people/ada.md" in listed
    assert "helper.py" not in listed


async def test_what_was_committed_counts_although_what_was_not_is_no_valid_memory(here: WriterMachine) -> None:
    opened = await here.open()
    write_in(opened, "learnt.md", note("Likes tea."))
    write_in(opened, "broken.md", "no front matter\n", message=None)
    assert (await here.writers.done(opened.id, "done")).state is WriterState.MERGED
    assert "broken.md" not in here.machine.published.git.line("ls-tree", "-r", "--name-only", "main").split()


async def test_only_a_merge_or_a_report_without_changes_counts_the_transcript_as_read(here: WriterMachine) -> None:
    await here.say("a", "b")
    first = await here.open(with_transcript=True)
    transcript = Path(first.tree).parent / "reads" / "transcript.jsonl"
    assert [line.count('"text": "') for line in transcript.read_text().splitlines()] == [1, 1]
    assert (await here.writers.done(first.id, "")).state is WriterState.ABANDONED
    assert await here.mark() == 0
    second = await here.open(with_transcript=True, asked=True)
    assert (await here.writers.done(second.id, "Nothing worth keeping.")).state is WriterState.UNCHANGED
    assert await here.mark() == 2
    with pytest.raises(WriterRefused) as refused:
        await here.open(with_transcript=True)
    assert refused.value.skip is WriterSkip.NOTHING_TO_READ
    await here.say("c")
    third = await here.open(with_transcript=True)
    write_in(third, "learnt.md", note("c"))
    await here.writers.done(third.id, "c")
    assert await here.mark() == 3
    nothing_is_left(here)


async def test_a_conflict_loses_neither_side_and_is_merged_once_main_allows_it(here: WriterMachine) -> None:
    here.machine.commit("fact.md", note("blue"))
    await here.machine.bring_in()
    await here.say("a")
    opened = await here.open(with_transcript=True)
    theirs = write_in(opened, "fact.md", note("green"))
    here.machine.commit("fact.md", note("red"))
    await here.machine.bring_in()
    ended = await here.writers.done(opened.id, "It is green.")
    assert (ended.state, ended.paths, ended.tip) == (WriterState.CONFLICTED, ("fact.md",), theirs)
    assert "red" in published(here, "fact.md")
    assert here.refs() == [f"refs/lodger/writers/{opened.id}"]
    assert here.folders() == []
    assert await here.mark() == 0
    here.machine.commit("fact.md", note("blue"), "back again")
    await here.machine.bring_in()
    again = await here.writers.merge_again(opened.id)
    assert again.state is WriterState.MERGED
    assert "green" in published(here, "fact.md")
    assert await here.mark() == 1
    nothing_is_left(here)


async def test_what_a_cancelled_writer_wrote_is_kept_until_a_person_merges_or_drops_it(here: WriterMachine) -> None:
    for act in ("merge", "drop"):
        opened = await here.open(asked=True)
        write_in(opened, f"{act}.md", note(act))
        ended = await here.writers.cancel(opened.id, "a person stopped it")
        assert (ended.state, ended.reason) == (WriterState.RESCUED, "a person stopped it")
        assert opened.ended.is_set()
        assert here.refs() == [f"refs/lodger/writers/{opened.id}"]
        with pytest.raises(WriterRefused):
            await here.writers.done(opened.id, "too late")
        if act == "merge":
            assert (await here.writers.merge_again(opened.id)).state is WriterState.MERGED
            assert "merge" in published(here, "merge.md")
        else:
            assert (await here.writers.drop(opened.id)).state is WriterState.ABANDONED
        nothing_is_left(here)


async def test_a_cancelled_writer_without_work_leaves_nothing(here: WriterMachine) -> None:
    opened = await here.open()
    assert (await here.writers.cancel(opened.id, "stopped")).state is WriterState.ABANDONED
    nothing_is_left(here)


async def test_a_writer_that_takes_too_long_is_ended_and_its_work_is_kept(here: WriterMachine) -> None:
    opened = await here.open(limit_s=0.2)
    write_in(opened, "learnt.md", note("Likes tea."))
    async with asyncio.timeout(20):
        await opened.ended.wait()
    ended = await here.record(opened.id)
    assert ended.state is WriterState.RESCUED
    assert "longer than" in ended.reason


async def test_who_asks_may_go_away_and_only_the_first_that_says_done_counts(here: WriterMachine) -> None:
    opened = await here.open()
    write_in(opened, "learnt.md", note("Likes tea."))
    asking = asyncio.create_task(here.writers.done(opened.id, "first"))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(WriterRefused) as refused:
        await here.writers.done(opened.id, "second")
    assert refused.value.skip is WriterSkip.OTHER_STATE
    await at_rest(here.writers)
    with pytest.raises(asyncio.CancelledError):
        await asking
    ended = await here.record(opened.id)
    assert (ended.state, ended.report) == (WriterState.MERGED, "first")
    nothing_is_left(here)


async def test_at_most_one_of_a_kind_is_open(here: WriterMachine) -> None:
    opened = await here.open()
    with pytest.raises(WriterRefused) as refused:
        await here.open()
    assert refused.value.skip is WriterSkip.BUSY
    other = await here.open(WriterKind.REPAIR)
    for one in (opened, other):
        await here.writers.cancel(one.id, "enough")
    nothing_is_left(here)


async def test_failures_in_a_row_delay_the_next(here: WriterMachine) -> None:
    opened = await here.open()
    await here.writers.cancel(opened.id, "stopped")
    with pytest.raises(WriterRefused) as refused:
        await here.open()
    assert refused.value.skip is WriterSkip.TOO_EARLY
    again = await here.open(asked=True)
    await here.writers.done(again.id, "all well")
    await here.writers.cancel((await here.open()).id, "stopped")


async def test_an_old_conflict_is_tried_again_by_the_next_and_does_not_delay_it(here: WriterMachine) -> None:
    here.machine.commit("fact.md", note("blue"))
    await here.machine.bring_in()
    old = await here.open()
    write_in(old, "fact.md", note("green"))
    here.machine.commit("fact.md", note("red"))
    await here.machine.bring_in()
    assert (await here.writers.done(old.id, "x")).state is WriterState.CONFLICTED
    for _ in range(2):
        opened = await here.open(asked=True)
        assert (await here.record(old.id)).state is WriterState.CONFLICTED
        await here.writers.done(opened.id, "nothing new")
    await here.writers.cancel((await here.open()).id, "x")
    # One failure's wait, not that of two.
    with pytest.raises(WriterRefused, match=r"the next in (8\d\d|900) s"):
        await here.open()
    here.machine.commit("fact.md", note("blue"))
    await here.machine.bring_in()
    await here.writers.done((await here.open(asked=True)).id, "nothing new")
    assert (await here.record(old.id)).state is WriterState.MERGED
    assert "green" in published(here, "fact.md")


async def test_work_that_is_no_valid_memory_stays_in_its_tree(here: WriterMachine) -> None:
    opened = await here.open()
    write_in(opened, "CON.md", note("x"))
    ended = await here.writers.done(opened.id, "done")
    assert (ended.state, ended.tip) == (WriterState.RESCUED, None)
    assert "CON.md" in ended.reason
    assert here.folders() == [opened.id]
    # What it began with, and what it hands in later may leave out.
    assert here.refs() == [f"refs/lodger/bases/{opened.id}"]
    with pytest.raises(WriterRefused, match=r"no valid memory; it lies in .*tree"):
        await here.writers.merge_again(opened.id)
    await here.writers.drop(opened.id)
    nothing_is_left(here)


async def test_an_invalid_commit_below_a_valid_one_is_merged_as_one(here: WriterMachine) -> None:
    opened = await here.open()
    write_in(opened, "CON.md", note("x"))
    (Path(opened.tree) / "CON.md").unlink()
    write_in(opened, "learnt.md", note("x"), "mended")
    assert (await here.writers.done(opened.id, "done")).state is WriterState.MERGED
    assert "CON.md" not in here.machine.published.git.line("log", "--name-only", "--format=", "main")


async def test_what_a_writer_began_with_stays_though_main_goes_another_way(here: WriterMachine) -> None:
    opened = await here.open()
    write_in(opened, "learnt.md", note("Likes tea."))
    room = here.machine.memory.repository(AGENT, None).room
    base = room.published.head() or ""

    def replace_main(published: Published) -> None:
        tree = published.commit(base).tree
        other = published.git.line("commit-tree", tree, "-m", "another history")
        published.change_refs(RefChange(MAIN, other, base), RefChange(CHECKOUT, other, published.ref(CHECKOUT)))
        sweep_at_next(published)

    await room.local(replace_main, room.published)
    await room.keep_house(has_remote=False)
    assert room.published.has(base)
    ended = await here.writers.done(opened.id, "done")
    assert ended.tip is not None
    assert here.machine.published.git.run("show", f"{ended.tip}:learnt.md")


async def test_a_file_that_was_locked_meanwhile_is_not_overwritten(here: WriterMachine) -> None:
    here.machine.commit("rule.md", note("be kind", "rule"))
    await here.machine.bring_in()
    opened = await here.open()
    write_in(opened, "rule.md", note("be kind\nand quick", "rule"))
    locked = published(here, "agent.toml") + 'read_only = ["rule.md"]\n'
    await here.machine.memory.change_for_person(AGENT, "agent.toml", locked.encode(), "lock")
    ended = await here.writers.done(opened.id, "done")
    assert ended.state is WriterState.RESCUED
    assert "rule.md" in ended.reason
    assert published(here, "rule.md") == note("be kind", "rule")
    assert here.machine.published.git.run("show", f"{ended.tip}:rule.md").decode().endswith("and quick\n")


async def test_a_tree_that_is_hard_to_remove_is_removed(here: WriterMachine) -> None:
    opened = await here.open()
    deep = "mkdir -p d && cd d || exit 1; for i in $(seq 1300); do mkdir x; cd x; done; chmod 0 ."
    done = await asyncio.create_subprocess_exec("sh", "-c", deep, cwd=opened.tree)
    assert await done.wait() == 0
    (Path(opened.tree) / "out").symlink_to(here.machine.checkout)
    assert (await here.writers.done(opened.id, "nothing")).state is WriterState.UNCHANGED
    assert (here.machine.checkout / "MEMORY.md").exists()
    nothing_is_left(here)


async def test_without_a_box_it_waits_and_nothing_is_lost(here: WriterMachine) -> None:
    opened = await here.open()
    write_in(opened, "learnt.md", note("Likes tea."))
    here.machine.boxes.broken = True
    assert (await here.writers.done(opened.id, "done")).state is WriterState.FINISHED
    here.machine.boxes.broken = False
    assert (await here.writers.cancel(opened.id, "")).state is WriterState.MERGED
    assert "Likes tea." in published(here, "learnt.md")


@pytest.mark.parametrize(
    "seam", ["after taking in a writer's commits", "after noting how a writer ended", "before removing a writer's tree"]
)
async def test_a_fault_of_ours_keeps_no_writer_open(here: WriterMachine, seam: str) -> None:
    faults = [KeyError("nobody thought of it")]

    def fault_once(place: str) -> None:
        if place == seam and faults:
            raise faults.pop()

    writers = make_writers(here.machine, here.database, fault_once)
    opened = await writers.open(AGENT, WriterKind.REFLECTION)
    write_in(opened, "learnt.md", note("Likes tea."))
    await writers.done(opened.id, "done")
    assert not faults
    with contextlib.suppress(WriterRefused):
        await writers.cancel(opened.id, "once more, before its minute is over")
    assert (await here.record(opened.id)).state is WriterState.MERGED
    assert "Likes tea." in published(here, "learnt.md")
    await writers.aclose()
    await here.writers.open(AGENT, WriterKind.REFLECTION)


async def test_a_conflict_that_waits_for_somebody_is_not_decided_by_one_who_does_not_know(
    tmp_path: Path, hub: RunningHost
) -> None:
    """The agent and the remote differ about a path; a reflection writes there, too."""
    remote = MemoryRemote(hub.base_url, lambda: TOKEN)
    async with writer_machine(tmp_path / "one", remote) as one:
        one.machine.commit("fact.md", note("blue"))
        await one.machine.end_turn()
        async with writer_machine(tmp_path / "two", remote, founded=False) as two:
            one.machine.commit("fact.md", note("green"))
            two.machine.commit("fact.md", note("red"))
            await one.machine.end_turn()
            await two.machine.end_turn()
            assert two.machine.memory.conflict(AGENT) is not None
            opened = await two.open()
            write_in(opened, "fact.md", note("red, I think"))
            ended = await two.writers.done(opened.id, "done")
            assert (ended.state, ended.paths) == (WriterState.CONFLICTED, ("fact.md",))
            assert two.machine.memory.conflict(AGENT) is not None
            repair = await two.open(WriterKind.REPAIR)
            write_in(repair, "fact.md", note("green and red"))
            assert (await two.writers.done(repair.id, "both")).state is WriterState.MERGED
            await two.machine.end_turn()
            assert two.machine.memory.conflict(AGENT) is None
            assert "green and red" in agent_git(hub.host._repositories.path(AGENT), "show", "main:fact.md")


async def test_what_another_machine_pushed_meanwhile_is_known_before_a_merge(tmp_path: Path, hub: RunningHost) -> None:
    """A contradiction is the writer's to wait with: it becomes no conflict of the agent's."""
    remote = MemoryRemote(hub.base_url, lambda: TOKEN)
    async with writer_machine(tmp_path / "one", remote) as one:
        one.machine.commit("fact.md", note("blue"))
        await one.machine.end_turn()
        async with writer_machine(tmp_path / "two", remote, founded=False) as two:
            opened = await two.open()
            write_in(opened, "fact.md", note("red"))
            one.machine.commit("fact.md", note("green"))
            await one.machine.end_turn()
            ended = await two.writers.done(opened.id, "It is red.")
            assert (ended.state, ended.paths) == (WriterState.CONFLICTED, ("fact.md",))
            await two.machine.memory.settled(AGENT, 30)
            assert two.machine.memory.conflict(AGENT) is None
            assert two.machine.memory.reminders(AGENT) == ()
            assert (two.machine.checkout / "fact.md").read_text() == note("green")


async def test_a_merge_that_is_done_again_after_a_crash_changes_nothing(here: WriterMachine) -> None:
    """Main has gone on since, in the same places: without a sign of its own the merge would look like a conflict."""

    def lines(third: str, sixth: str) -> str:
        return note("\n".join(("one", "two", third, "four", "five", sixth, "seven")))

    here.machine.commit("fact.md", lines("three", "six"))
    await here.machine.bring_in()
    opened = await here.open()
    write_in(opened, "fact.md", lines("THREE", "six"))
    here.machine.commit("fact.md", lines("three", "SIX"))
    await here.machine.bring_in()
    kept = await here.writers.cancel(opened.id, "x")
    assert kept.tip is not None
    assert kept.base is not None
    repository = here.machine.published
    with repository.lock():
        first = merge(repository, kept.id, kept.tip, kept.base, (), 1)
        assert isinstance(first, Landed)
        assert published(here, "fact.md") == lines("THREE", "SIX")
    later = lines("3", "SIX").encode()
    await here.machine.memory.change_for_person(AGENT, "fact.md", later, "later")
    with repository.lock():
        assert merge(repository, kept.id, kept.tip, kept.base, (), 1) == first
    assert (await here.writers.merge_again(kept.id)).state is WriterState.MERGED
    assert published(here, "fact.md").encode() == later
    nothing_is_left(here)
