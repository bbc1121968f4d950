"""R11, G7: machines that share a memory over a bad wire lose nothing and end up the same. Real git on both sides.

A fixed base set of seeds, then fresh ones until the time is up; `make soak` runs 300 seeds with ten machines.
A failing seed prints itself: `pytest tests/integration/memory/test_many_machines.py --memory-seed N:MACHINES:REMOTE`.
"""

import asyncio
import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from support.faulty_wire import running_faulty_wire
from support.foreign_git_host import running_foreign_host
from support.git_host_server import TOKEN
from support.machine_processes import processes
from support.memory_hub import HubProcess
from support.memory_machines import AGENT
from support.memory_world import Remote, World
from support.small_disk import small_disk

LIMIT_S = 100.0
"""Of all seeds in `make test`: the fixed ones, which run however long they take, then fresh ones until it is over."""
FIXED = (*((seed, 2 if seed % 3 else 3, ("hub", "foreign")[seed % 2]) for seed in range(8)), (100, 10, "hub"))
SEED_LIMIT_S = 240.0
"""No seed may hang; ten machines on a busy computer take their time."""
DISK_BYTES = 512 * 1024 * 1024
"""In memory; ten machines and a hub leave most of it to the ballast."""
SOAK_SEEDS = 300
SOAK_MACHINES = 10


@asynccontextmanager
async def world(seed: int, machines: int, kind: str, folder: Path) -> AsyncIterator[World]:
    with ExitStack() as stack:
        small = seed % 4 == 3 and os.geteuid() == 0
        disk = stack.enter_context(small_disk(folder, DISK_BYTES)) if small else None
        if kind == "hub":
            hub = HubProcess(folder / "hub", tidies=seed % 3 == 0)
            await asyncio.to_thread(hub.start)
            stack.callback(hub.kill)
            url, root = hub.url, folder / "hub" / "git"
        else:
            hub = None
            url, root = stack.enter_context(running_foreign_host(folder / "foreign", AGENT)), folder / "foreign"
        wire = stack.enter_context(running_faulty_wire(url))
        wire.draw = random.Random(seed)
        wire.kill = lambda: kill_there(root, hub if wire.draw.random() < 0.3 else None)
        token = (lambda: TOKEN) if hub is None else (lambda: hub.token("machine"))
        repositories = root if hub is not None else root / "v1" / "git"
        made = World(seed, machines, folder, Remote(wire, token, repositories, hub), disk)
        try:
            yield made
        finally:
            await made.aclose()


def kill_there(root: Path, hub: HubProcess | None) -> None:
    """`kill -9` of each git at work on repositories of this folder, and first of the hub if there is one."""
    if hub is not None:
        hub.kill()
    served, kept = f"GIT_PROJECT_ROOT={root}\0".encode(), f"--git-dir={root}/"
    for pid, _, seen in processes():
        if "git" in seen.command:
            with contextlib.suppress(OSError):
                if kept in seen.command or served in Path(f"/proc/{pid}/environ").read_bytes():
                    os.kill(pid, signal.SIGKILL)


async def play(seed: int, machines: int, kind: str, folder: Path) -> World:
    """Raises: AssertionError, with the seed and what happened printed."""
    async with world(seed, machines, kind, folder) as made:
        try:
            async with asyncio.timeout(SEED_LIMIT_S):
                await made.live()
                await made.heal()
            made.check()
        except BaseException:
            print(f"\nFAILED: --memory-seed {seed}:{machines}:{kind}\n" + "\n".join(made.story))
            raise
        return made


def seeds(soak: bool, one: str | None) -> Iterator[tuple[int, int, str]]:
    if one is not None:
        seed, machines, kind = one.split(":")
        yield int(seed), int(machines), kind
        return
    began = time.monotonic()
    yield from FIXED
    fresh = max(1000, int(time.time()))
    if soak:
        yield from ((fresh + number, SOAK_MACHINES, ("hub", "foreign")[number % 2]) for number in range(SOAK_SEEDS))
        return
    number = 0
    while time.monotonic() - began < LIMIT_S:
        yield fresh + number, 2 + number % 2, ("hub", "foreign")[number % 2]
        number += 1


@pytest.mark.timeout(0)
async def test_r11_nothing_is_lost_and_all_end_up_the_same(
    tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    soak, one = bool(request.config.getoption("--soak")), request.config.getoption("--memory-seed")
    began, count, commits, deaths, mishaps = time.monotonic(), 0, 0, Counter[str](), Counter[str]()
    for seed, machines, kind in seeds(soak, one):
        played = await play(seed, machines, kind, tmp_path / f"{seed}-{count}")
        commits += len(played.markers)
        deaths.update(played.deaths)
        mishaps += played.mishaps
        count += 1
    with capsys.disabled():
        took_s = time.monotonic() - began
        print(f"\nmemories shared over a bad wire: {count} seeds, {commits} commits, {took_s:.0f} s")
        print(", ".join(f"{number} {name}" for name, number in sorted(mishaps.items())))
        listed = ", ".join(f"{count} {seam}" for seam, count in sorted(deaths.items()))
        print(f"the hub was killed {deaths.total()} times: {listed}")
