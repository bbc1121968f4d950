"""A large memory is fetched, shown, written, synced and put together within stated times and memory (docs/memory.md),
with a real box and a real hub. In the usual run a tenth of the size; the whole of it with `--soak`."""

import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from lodger_daemon.memory.backups import write_backup
from lodger_daemon.memory.contract import SyncOutcome
from lodger_daemon.memory.history import HistoryEntry, read_history
from lodger_daemon.memory.persons_view import list_files
from lodger_daemon.memory.published import CHECKOUT, Published
from lodger_hub.git_host.repositories import own_memory
from support.git_host_server import RunningHost, running_git_host
from support.large_memory import LARGE, Size, write_large_memory
from support.memory_machines import AGENT, note
from support.plain_boxes import agent_git
from support.real_memory_machine import RealMachine
from support.sandbox_users import own, user_of_boxes, visible_folder

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs folders outside every private folder")
MIB = 1024**2


@dataclass(frozen=True, slots=True)
class Bounds:
    """Far above what a quiet machine needs, and far below what grows with the square of the size."""

    size: Size
    first_s: float
    """Until a new machine has all of it."""
    everyday_s: float
    """For each single thing afterwards."""
    peak_bytes: int
    """What this process, daemon and hub in one, takes for a moment on top."""


TENTH = Bounds(Size(1_000, 20_000_000, 1_000, 8_000_000), 90.0, 30.0, 200 * MIB)
WHOLE = Bounds(LARGE, 400.0, 60.0, 500 * MIB)


@contextmanager
def within(limit_s: float, what: str) -> Iterator[None]:
    began_s = time.monotonic()
    yield
    took_s = time.monotonic() - began_s
    assert took_s < limit_s, f"{what} took {took_s:.1f} s"


def resident_bytes(key: str) -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{key}:")[2].split()[0]) * 1024


def forget_peak() -> int:
    """From now on the peak is counted anew; what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")
    return resident_bytes("VmRSS")


def fill(hub: RunningHost, size: Size) -> str:
    return write_large_memory(hub.host._repositories.ensure(own_memory(AGENT)), size)


def commit_elsewhere(hub: RunningHost, folder: Path, count: int) -> str:
    """Another machine's commits, each to a file of its own; the last one's id."""
    work = folder / "elsewhere"
    shutil.rmtree(work, ignore_errors=True)
    agent_git(folder, "clone", "-q", str(hub.host._repositories.path(AGENT)), str(work))
    agent_git(work, "config", "user.name", "elsewhere")
    agent_git(work, "config", "user.email", "elsewhere@lodger.invalid")
    for number in range(count):
        (work / "notes" / f"elsewhere-{count}-{number}.md").write_text(note(str(number)))
        agent_git(work, "add", "-A")
        agent_git(work, "commit", "-q", "-m", f"elsewhere {number}")
    agent_git(work, "push", "-q", "origin", "HEAD:main")
    return agent_git(work, "rev-parse", "HEAD")


@asynccontextmanager
async def machine(folder: Path, hub: RunningHost) -> AsyncIterator[RealMachine]:
    with visible_folder() as workspace, tempfile.TemporaryDirectory(prefix="lodger-large-", dir=folder) as state:
        own(workspace, user_of_boxes())
        made = RealMachine(Path(state), workspace, hub)
        try:
            yield made
        finally:
            await made.aclose()


def history_of_x(published: Published, head: str) -> tuple[HistoryEntry, ...]:
    return read_history(published, head, 50, "notes/x.md")


async def synced(made: RealMachine) -> SyncOutcome:
    made.memory.turn_ended(AGENT, made.box)
    return (await made.memory.settled(AGENT, 600)).outcome


async def lives_with_it(folder: Path, bounds: Bounds) -> None:
    everyday_s = bounds.everyday_s
    with running_git_host(folder / "hub") as hub:
        head = fill(hub, bounds.size)
        async with machine(folder, hub) as one:
            before_bytes = forget_peak()
            with within(bounds.first_s, "a new machine"):
                await one.memory.prepare(AGENT, None)
            published = one.memory.repository(AGENT, None).room.published
            assert published.head() == published.ref(CHECKOUT) == head
            assert await one.shell("git status --porcelain | wc -l; git ls-files | wc -l") == f"0\n{bounds.size.files}"
            with within(everyday_s, "a prompt"):
                assert "more; list the folders" in (await one.memory.compiled(AGENT)).text
            await one.shell("printf -- '---\\nname: x\\ndescription: y\\n---\\n\\nhello\\n' > notes/x.md")
            with within(everyday_s, "a commit"):
                await one.shell("git add -A && git commit -q -m fact")
            with within(everyday_s, "an import"):
                assert (await one.memory.import_commits(AGENT, one.box)).moved
            with within(everyday_s, "a push"):
                assert await synced(one) is SyncOutcome.PUSHED
            theirs = commit_elsewhere(hub, folder, 10)
            await one.shell("for i in 1 2 3; do echo $i >> notes/x.md; git commit -q -a -m $i; done")
            with within(everyday_s, "a replay"):
                assert await synced(one) is SyncOutcome.PUSHED
            assert published.is_ancestor(theirs, hub.host.head(AGENT) or "")
            assert published.head() == published.ref(CHECKOUT) == hub.host.head(AGENT)
            with within(everyday_s, "a list of all files"):
                assert len(await one.memory.look(AGENT, list_files)) > bounds.size.files * 0.9
            with within(everyday_s, "the history of a file"):
                found = await one.memory.look(
                    AGENT, lambda repository, at: read_history(repository, at, 50, "notes/x.md")
                )
            assert len(found) == 4
            with within(everyday_s, "a backup"):
                await one.memory.look(AGENT, lambda repository, _: write_backup(repository, AGENT, folder / "backup"))
            peak_bytes = resident_bytes("VmHWM") - before_bytes
            assert peak_bytes < bounds.peak_bytes, f"{peak_bytes / MIB:.0f} MiB"


@pytest.mark.timeout(400)
async def test_a_tenth_of_a_large_memory(tmp_path: Path) -> None:
    await lives_with_it(tmp_path, TENTH)


@pytest.mark.soak
@pytest.mark.timeout(1800)
async def test_a_large_memory(tmp_path: Path) -> None:
    await lives_with_it(tmp_path, WHOLE)
