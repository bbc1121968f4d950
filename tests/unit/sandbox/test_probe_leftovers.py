"""A killed probe's folder and stuck process are cleared away later; what is young or of others stays."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lodger_sandbox.probe_leftovers import PREFIX, clear_leftovers
from support.patience import LIMIT_S

STUCK = """
import os, sys, time
if os.fork():
    os._exit(0)
os.setsid()
print(os.getpid(), flush=True)
os.dup2(os.open(os.devnull, os.O_RDWR), 1)
os.execv(sys.executable, ["bwrap", "-c", "import time; time.sleep(600)", sys.argv[1]])
"""


@pytest.fixture
def orphan() -> Iterator[int]:
    """A process that looks like a probe whose daemon is gone."""
    started = subprocess.run(
        [sys.executable, "-c", STUCK, f"{PREFIX}test"], stdout=subprocess.PIPE, text=True, check=True, timeout=LIMIT_S
    )
    pid = int(started.stdout)
    while not Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"bwrap"):
        os.sched_yield()
    yield pid
    try:
        os.kill(pid, 9)
    except ProcessLookupError:
        pass


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def test_old_folders_go_and_young_or_linked_ones_stay(tmp_path: Path) -> None:
    old, young, other = tmp_path / f"{PREFIX}old", tmp_path / f"{PREFIX}young", tmp_path / "else"
    for folder in (old / "home", young, other):
        folder.mkdir(parents=True)
    link = tmp_path / f"{PREFIX}link"
    link.symlink_to(other)
    for path in (old, other):
        os.utime(path, (0, 0))
    os.utime(link, (0, 0), follow_symlinks=False)
    clear_leftovers(frozenset(), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["else", f"{PREFIX}link", f"{PREFIX}young"]


def test_an_old_orphan_is_ended_and_a_young_one_is_not(tmp_path: Path, orphan: int) -> None:
    uids = frozenset({os.geteuid()})
    clear_leftovers(uids, tmp_path)
    assert is_alive(orphan)
    clear_leftovers(frozenset({os.geteuid() + 1}), tmp_path, old_after_s=-1)
    assert is_alive(orphan)
    clear_leftovers(uids, tmp_path, old_after_s=-1)
    while is_alive(orphan):
        os.sched_yield()
