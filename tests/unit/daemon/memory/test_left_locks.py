"""A git of ours that is killed as it moves a ref leaves files that stop the next one. They are taken away. Real git."""

from pathlib import Path

import pytest

from lodger_daemon.memory.kept import drop_kept
from support.memory_machines import Machine, note, running_machine

LEFT = ("HEAD.lock", "packed-refs.lock", "packed-refs.new")


def leave(machine: Machine, name: str) -> Path:
    left = machine.published.repository / name
    left.touch()
    return left


@pytest.mark.parametrize("name", ["refs/heads/main.lock", *LEFT])
async def test_a_commit_is_published_all_the_same(tmp_path: Path, name: str) -> None:
    async with running_machine(tmp_path / "a") as one:
        leave(one, name)
        commit = one.commit("fact.md", note("blue"))
        assert (await one.bring_in()).moved
        assert one.published.head() == commit


@pytest.mark.parametrize("name", ["refs/lodger/pending/old.lock", *LEFT])
async def test_what_is_kept_beside_main_goes_all_the_same(tmp_path: Path, name: str) -> None:
    async with running_machine(tmp_path / "a") as one:
        one.published.set_ref("refs/lodger/pending/old", one.published.head() or "")
        one.published.git.run("pack-refs", "--all")
        one.published.close()
        (one.published.repository / "refs" / "lodger" / "pending").mkdir(parents=True, exist_ok=True)
        leave(one, name)
        drop_kept(one.published, "pending/old")
        assert one.published.ref("refs/lodger/pending/old") is None
