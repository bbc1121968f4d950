"""What lies beside main is counted for the person: how much of each kind, and how much room only it takes. It goes once
main has it all, here and at the remote, and else when a person says so. Real git."""

from pathlib import Path

import pytest

from lodger_daemon.memory.backups import NotRestored, Restored, bring_back
from lodger_daemon.memory.contract import SyncOutcome
from lodger_daemon.memory.core.wanted_paths import BadRequest
from lodger_daemon.memory.holding import HELD
from lodger_daemon.memory.kept import Kept, KeptKind, KeptRef, drop_kept, kept_beside_main, kept_named, list_kept
from lodger_daemon.memory.published import Published
from lodger_daemon.memory.settling import Decision, Side
from support.git_host_server import RunningHost
from support.memory_conflicts import apart, in_order
from support.memory_machines import AGENT, Machine, note, running_machine


async def kept(machine: Machine) -> Kept:
    return await machine.memory.look(AGENT, kept_beside_main)


async def test_a_memory_where_nothing_went_wrong_keeps_nothing(tmp_path: Path) -> None:
    async with running_machine(tmp_path / "a") as one:
        one.commit("fact.md", note("blue"))
        await one.end_turn()
        assert await kept(one) == Kept({}, 0, ())


async def test_both_sides_of_a_conflict_are_counted_also_when_it_is_settled(tmp_path: Path, hub: RunningHost) -> None:
    async with apart(tmp_path, hub, ("fact.md", note("green"), note("red"))) as (_, two):
        found = await kept(two)
        assert (found.refs, found.checkouts) == ({KeptKind.CONFLICT: 2}, ())
        # This machine's side is a commit that main has in another form only.
        assert found.size_bytes > 100
        await two.memory.settle(AGENT, Decision(rest=Side.OURS))
        assert two.published.ref(HELD) is None
        assert (await two.memory.settled(AGENT, 20)).outcome is SyncOutcome.PUSHED
        # The other machine's side is part of main.
        assert (await kept(two)).refs == {KeptKind.CONFLICT: 1}


async def test_what_main_has_as_well_takes_no_room(tmp_path: Path) -> None:
    async with running_machine(tmp_path / "a") as one:
        old = one.published.head() or ""
        one.commit("fact.md", note("blue"))
        await one.end_turn()
        assert old != one.published.head()
        one.published.set_ref("refs/lodger/pending/old", old)
        assert await kept(one) == Kept({KeptKind.PENDING: 1}, 0, ())
        alone = await one.memory.look(AGENT, commit_alone)
        one.published.set_ref("refs/lodger/rescue/1-local", alone)
        found = await kept(one)
        assert found.refs == {KeptKind.RESCUE: 1, KeptKind.PENDING: 1}
        assert 100 < found.size_bytes < 1000


def commit_alone(published: Published, head: str, *parents: str) -> str:
    tree = published.commit(head).tree
    return published.git.line("commit-tree", tree, *parents, "-m", "another history")


async def test_one_that_is_off_the_end_of_the_list_is_found_by_its_name(tmp_path: Path) -> None:
    async with running_machine(tmp_path / "a") as one:
        old, new = one.published.head() or "", await one.memory.look(AGENT, commit_alone)
        one.published.set_ref("refs/lodger/rescue/1-local", old)
        lines = "".join(f"create refs/lodger/pending/{number} {new}\n" for number in range(1000))
        await one.memory.look(AGENT, lambda it, _: it.git.line("update-ref", "--stdin", stdin=lines.encode()))
        listed = await one.memory.look(AGENT, list_kept)
        assert len(listed) == 1000
        assert "rescue/1-local" not in [kept.name for kept in listed]
        assert (await one.memory.look(AGENT, lambda it, _: kept_named(it, "rescue/1-local"))).commit == old


async def test_checkouts_that_were_set_aside_are_named(tmp_path: Path) -> None:
    async with running_machine(tmp_path / "a") as one:
        aside = one.published.folder / "checkout-1796000000"
        aside.mkdir()
        assert (await kept(one)).checkouts == (aside,)


async def test_what_main_has_goes_by_itself_once_the_remote_has_it_too(tmp_path: Path, hub: RunningHost) -> None:
    async with running_machine(tmp_path / "a", hub) as one:
        assert (await one.end_turn()).outcome is SyncOutcome.PUSHED
        old, alone = one.published.head() or "", await one.memory.look(AGENT, commit_alone)
        new = one.commit("fact.md", note("blue"))
        assert (await one.bring_in()).head == new
        for name, commit in (("rescue/1-local", alone), ("rescue/1-remote", old), ("pending/new", new)):
            one.published.set_ref(f"refs/lodger/{name}", commit)
        hub.faults = [403] * 20
        assert (await one.end_turn()).outcome is SyncOutcome.PUSH_FAILED
        assert [found.name for found in await named(one)] == ["pending/new", "rescue/1-local"]
        hub.faults = []
        assert (await one.end_turn()).outcome is SyncOutcome.PUSHED
        assert [found.name for found in await named(one)] == ["rescue/1-local"]
        in_order(one)


async def test_without_a_remote_what_main_has_goes_at_once_and_nothing_else_ever(tmp_path: Path) -> None:
    async with running_machine(tmp_path / "a") as one:
        alone = await one.memory.look(AGENT, commit_alone)
        child = await one.memory.look(AGENT, lambda published, head: commit_alone(published, head, "-p", head))
        for name, commit in (("a", alone), ("b", child), ("c", one.published.head() or "")):
            one.published.set_ref(f"refs/lodger/conflict/{name}/local", commit)
            one.published.set_ref(f"refs/lodger/writers/{name}", commit)
        for _ in range(2):
            assert (await one.end_turn()).outcome is SyncOutcome.SKIPPED
            assert {found.name: found.commit for found in await named(one)} == {
                "conflict/a/local": alone,
                "conflict/b/local": child,
            }
            # Background writers let go of their own.
            assert (await kept(one)).refs == {KeptKind.CONFLICT: 2, KeptKind.WRITERS: 3}


async def test_a_person_brings_one_back_and_lets_go_of_it(tmp_path: Path) -> None:
    async with running_machine(tmp_path / "a") as one:
        old = one.published.head() or ""
        one.commit("fact.md", note("blue"))
        await one.end_turn()
        main = one.published.head() or ""
        other = await one.memory.look(AGENT, lambda published, _: commit_alone(published, old))
        one.published.set_ref("refs/lodger/rescue/1-local", other)
        one.published.set_ref("refs/lodger/writers/w", other)
        found = await one.memory.look(AGENT, lambda published, _: kept_named(published, "rescue/1-local"))
        assert (found.commit, found.subject) == (other, "another history")
        done = await one.memory.look(AGENT, lambda published, _: bring_back(published, other, 1_796_000_000))
        assert isinstance(done, Restored)
        assert one.published.commit(done.head).parents == (main,)
        assert one.published.commit(done.head).tree == one.published.commit(old).tree
        one.memory.sync_now(AGENT, fetch=False)
        await one.memory.settled(AGENT, 20)
        assert not (one.checkout / "fact.md").exists()
        in_order(one)
        for name in ("writers/w", "rescue/2", "", "../heads/main", "checkout"):
            with pytest.raises(BadRequest):
                await one.memory.look(AGENT, lambda published, _, name=name: drop_kept(published, name))
        await one.memory.look(AGENT, lambda published, _: drop_kept(published, "rescue/1-local"))
        assert await named(one) == ()
        assert one.published.head() == done.head


async def test_what_is_no_valid_memory_is_not_brought_back(tmp_path: Path) -> None:
    async with running_machine(tmp_path / "a") as one:
        main = one.published.head()

        def work(published: Published, _: str) -> object:
            blob = published.git.line("hash-object", "-w", "--stdin", stdin=b"target")
            tree = published.git.line("mktree", stdin=f"120000 blob {blob}\tlink\n".encode())
            return bring_back(published, published.git.line("commit-tree", tree, "-m", "x"), 1)

        assert isinstance(await one.memory.look(AGENT, work), NotRestored)
        assert one.published.head() == main


async def named(machine: Machine) -> tuple[KeptRef, ...]:
    return await machine.memory.look(AGENT, list_kept)
