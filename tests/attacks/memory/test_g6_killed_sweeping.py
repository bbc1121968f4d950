"""G6: kill -9 at the named seams of letting go of what nothing needs loses nothing else, and the next time does it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support import sweep_victim
from support.memory_conflicts import in_order
from support.memory_machines import AGENT, Machine, note

VICTIM = Path(sweep_victim.__file__)


def victim(folder: Path, record: Path, die_at: int) -> list[str]:
    argv = [sys.executable, str(VICTIM), str(folder), str(record), str(die_at)]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(VICTIM.parents[1])}
    died = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60)
    assert died.returncode == (-signal.SIGKILL if die_at else 0), died.stderr
    return record.read_text().splitlines()


@pytest.mark.timeout(240)
async def test_g6_kill_at_every_seam_of_sweeping(tmp_path: Path) -> None:
    names = victim(tmp_path / "whole", tmp_path / "whole-seams", 0)
    assert set(names) == {
        "before letting go of what main has", "before moving refs", "after moving refs",
        "before dropping what nothing needs", "after a step of dropping",
    }  # fmt: skip
    for die_at in range(1, len(names) + 1):
        folder = tmp_path / f"victim-{die_at}"
        assert victim(folder, tmp_path / f"seams-{die_at}", die_at) == names[:die_at]
        await lives_on(folder)


async def lives_on(folder: Path) -> None:
    machine = Machine(folder, None)
    try:
        published = machine.published
        head, kept = published.head() or "", published.ref(sweep_victim.KEPT) or ""
        objects = published.git.line("rev-list", "--objects", head, kept)
        await machine.end_turn()
        assert published.ref(sweep_victim.SUPERSEDED) is None
        assert published.ref(sweep_victim.KEPT) == kept
        assert published.git.line("rev-list", "--objects", head, kept) == objects
        assert published.git.line("fsck", "--unreachable") == ""
        assert (machine.checkout / "fact.md").read_text() == note("blue")
        new = machine.commit("more.md", note("more"))
        assert (await machine.memory.import_commits(AGENT, machine.box)).head == new
        in_order(machine)
    finally:
        await machine.memory.aclose()
