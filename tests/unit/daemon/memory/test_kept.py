"""What lies beside main is counted for the person: how much of each kind, and how much room only it takes. Real git."""

from pathlib import Path

from lodger_daemon.memory.holding import HELD
from lodger_daemon.memory.kept import Kept, KeptKind, kept_beside_main
from lodger_daemon.memory.published import Published
from lodger_daemon.memory.settling import Decision, Side
from support.git_host_server import RunningHost
from support.memory_conflicts import apart
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
        assert (await kept(two)).refs == {KeptKind.CONFLICT: 2}


async def test_what_main_has_as_well_takes_no_room(tmp_path: Path) -> None:
    async with running_machine(tmp_path / "a") as one:
        old = one.published.head() or ""
        one.commit("fact.md", note("blue"))
        await one.end_turn()
        one.published.set_ref("refs/lodger/pending/old", old)
        assert await kept(one) == Kept({KeptKind.PENDING: 1}, 0, ())
        alone = await one.memory.look(AGENT, commit_alone)
        one.published.set_ref("refs/lodger/rescue/1-local", alone)
        found = await kept(one)
        assert found.refs == {KeptKind.RESCUE: 1, KeptKind.PENDING: 1}
        assert 100 < found.size_bytes < 1000


def commit_alone(published: Published, head: str) -> str:
    tree = published.commit(head).tree
    return published.git.line("commit-tree", tree, "-m", "another history")


async def test_checkouts_that_were_set_aside_are_named(tmp_path: Path) -> None:
    async with running_machine(tmp_path / "a") as one:
        aside = one.published.folder / "checkout-1796000000"
        aside.mkdir()
        assert (await kept(one)).checkouts == (aside,)
