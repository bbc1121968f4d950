"""A full disk stops memory from growing, and nothing else: it is said, turns go on, and once there is room nothing is
missing. The disk is a small one of its own, under the machine's memory or under the hub's."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lodger_daemon.memory.contract import SyncOutcome
from lodger_daemon.memory.errors import MemoryFailure
from support.git_host_server import RunningHost, running_git_host
from support.memory_conflicts import heard, in_order, on_hub
from support.memory_machines import AGENT, CARD, Machine, note
from support.plain_boxes import agent_git
from support.small_disk import SmallDisk, small_disk

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")
DISK_BYTES = 24 * 1024 * 1024
QUIET = {SyncOutcome.CLEAN, SyncOutcome.PUSHED}


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[RunningHost]:
    with running_git_host(tmp_path / "hub") as running:
        yield running


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", DISK_BYTES) as made:
        yield made


@pytest.mark.parametrize("free_bytes", [0, 4096, 16384, 65536])
async def test_a_commit_waits_for_room(tmp_path: Path, hub: RunningHost, disk: SmallDisk, free_bytes: int) -> None:
    one = Machine(disk.folder / "a", hub)
    try:
        await one.memory.prepare(AGENT, CARD)
        await one.end_turn()
        commits = [one.commit(f"people/p{number}.md", note(os.urandom(3000).hex())) for number in range(4)]
        disk.fill(free_bytes)
        report = await one.bring_in()
        status = await one.end_turn()
        print(free_bytes, report, status, one.memory.reminders(AGENT))
        if not report.moved:
            assert "kept in the checkout" in report.text
            assert "No space left on device" in report.text or "couldn't write" in report.text
        assert "Ada" in (await one.memory.compiled(AGENT)).text
        disk.free()
        assert (await one.end_turn()).outcome in QUIET
        assert hub.host.head(AGENT) == one.published.head() == commits[-1]
        assert one.memory.reminders(AGENT) == ()
        in_order(one)
    finally:
        await one.memory.aclose()


@pytest.mark.parametrize("free_bytes", [0, 8192, 32768])
async def test_a_conflict_waits_for_room(tmp_path: Path, hub: RunningHost, disk: SmallDisk, free_bytes: int) -> None:
    one, two = Machine(tmp_path / "one", hub), Machine(disk.folder / "two", hub)
    try:
        await one.memory.prepare(AGENT, CARD)
        one.commit("fact.md", note("blue"))
        await one.end_turn()
        await two.memory.prepare(AGENT, None)
        one.commit("fact.md", note("green"))
        one.commit("train.md", note("At nine."))
        await one.end_turn()
        ours = two.commit("fact.md", note("red"))
        assert (await two.bring_in()).moved
        disk.fill(free_bytes)
        status = await two.end_turn()
        print(free_bytes, status, two.memory.reminders(AGENT))
        if status.outcome is not SyncOutcome.CONFLICT:
            assert (status.outcome, status.head) == (SyncOutcome.PUSH_FAILED, ours)
        disk.free()
        assert (await two.end_turn()).outcome is SyncOutcome.CONFLICT
        assert (two.checkout / "fact.md").read_text() == note("red")
        assert (two.checkout / "train.md").exists()
        assert "fact.md" in two.memory.reminders(AGENT)[0]
        two.commit("fact.md", note("red and green"))
        assert (await two.end_turn()).outcome is SyncOutcome.PUSHED
        assert await heard(one, hub) in QUIET
        assert (one.checkout / "fact.md").read_text() == note("red and green")
        in_order(one, two)
    finally:
        await one.memory.aclose()
        await two.memory.aclose()


@pytest.mark.parametrize("free_bytes", [350_000, 650_000, 950_000, 1_250_000])
async def test_a_checkout_waits_for_room(tmp_path: Path, hub: RunningHost, disk: SmallDisk, free_bytes: int) -> None:
    """The room lasts for published, for the objects of the checkout, or for some of its files."""
    one, two = Machine(tmp_path / "one", hub), Machine(disk.folder / "two", hub)
    try:
        await one.memory.prepare(AGENT, CARD)
        for number in range(4):
            one.commit(f"people/p{number}.md", note("short"))
        await one.end_turn()
        await two.memory.prepare(AGENT, None)
        texts = {f"people/p{number}.md": note(os.urandom(40_000).hex()) for number in range(6)}
        for path, text in texts.items():
            one.commit(path, text)
        await one.end_turn()
        disk.fill(free_bytes)
        outcome = await heard(two, hub)
        print(free_bytes, two.memory.status(AGENT), two.memory.reminders(AGENT))
        disk.free()
        await heard(two, hub)
        assert (await two.end_turn()).outcome in QUIET, (outcome, two.memory.status(AGENT))
        assert two.published.head() == hub.host.head(AGENT)
        for path, text in texts.items():
            assert (two.checkout / path).read_text() == text
        assert two.memory.reminders(AGENT) == ()
        in_order(one, two)
    finally:
        await one.memory.aclose()
        await two.memory.aclose()


@pytest.mark.parametrize("free_bytes", [1_100_000, 1_400_000, 1_700_000])
async def test_a_first_checkout_waits_for_room(
    tmp_path: Path, hub: RunningHost, disk: SmallDisk, free_bytes: int
) -> None:
    one, two = Machine(tmp_path / "one", hub), Machine(disk.folder / "two", hub)
    try:
        await one.memory.prepare(AGENT, CARD)
        texts = {f"people/p{number}.md": note(os.urandom(40_000).hex()) for number in range(8)}
        for path, text in texts.items():
            one.commit(path, text)
        await one.end_turn()
        disk.fill(free_bytes)
        try:
            await two.memory.prepare(AGENT, None)
            print(free_bytes, await two.end_turn(), sorted(path.name for path in two.checkout.rglob("*.md")))
        except (MemoryFailure, OSError) as failure:
            print(free_bytes, failure)
        disk.free()
        two.memory.repository(AGENT, None).room._no_restore_before = 0.0
        await two.memory.prepare(AGENT, None)
        assert (await two.end_turn()).outcome in QUIET
        for path, text in texts.items():
            assert (two.checkout / path).read_text() == text
        in_order(one, two)
    finally:
        await one.memory.aclose()
        await two.memory.aclose()


async def test_a_new_memory_waits_for_room(tmp_path: Path, hub: RunningHost, disk: SmallDisk) -> None:
    one = Machine(disk.folder / "a", hub)
    try:
        disk.fill(8192)
        with pytest.raises((MemoryFailure, OSError)):
            await one.memory.prepare(AGENT, CARD)
        disk.free()
        await one.memory.prepare(AGENT, CARD)
        assert (await one.end_turn()).outcome in QUIET
        in_order(one)
    finally:
        await one.memory.aclose()


@pytest.mark.parametrize("free_bytes", [0, 16384])
async def test_a_hub_without_room_refuses_and_loses_nothing(tmp_path: Path, disk: SmallDisk, free_bytes: int) -> None:
    with running_git_host(disk.folder / "hub") as hub:
        one = Machine(tmp_path / "a", hub)
        try:
            await one.memory.prepare(AGENT, CARD)
            one.commit("fact.md", note("blue"))
            assert (await one.end_turn()).outcome is SyncOutcome.PUSHED
            before = hub.host.head(AGENT)
            disk.fill(free_bytes)
            commit = one.commit("large.md", note(os.urandom(20_000).hex()))
            status = await one.end_turn()
            print(free_bytes, status, one.memory.reminders(AGENT))
            assert (status.outcome, status.head, status.ahead) == (SyncOutcome.PUSH_FAILED, commit, 1)
            assert hub.host.head(AGENT) == before
            assert "safe on this machine" in one.memory.reminders(AGENT)[0]
            disk.free()
            assert (await one.end_turn()).outcome is SyncOutcome.PUSHED
            assert "large" not in on_hub(hub, "fact.md")
            assert hub.host.head(AGENT) == commit
            agent_git(hub.host._repositories.path(AGENT), "fsck", "--full", "--strict")
            in_order(one)
        finally:
            await one.memory.aclose()
