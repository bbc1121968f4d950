"""R11: the hub dies by `kill -9` at each named step of its git host and starts on the same data: nothing is lost, every
push goes through in the end, and who shares what is as before or as asked for."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lodger_daemon.memory.contract import SyncOutcome
from lodger_daemon.memory.errors import MemoryFailure
from lodger_daemon.memory.remote import MemoryRemote
from support.memory_hub import SEAMS, HubProcess
from support.memory_machines import AGENT, CARD, Machine, note
from support.memory_world import git
from support.shared_machines import ask, share

TRIES = 20
"""A push that met the dead hub is tried again by itself; only the test's patience has an end."""
FIRST = ("before naming a repository", "after naming a repository")
"""Passed once for each memory."""


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[HubProcess]:
    made = HubProcess(tmp_path / "hub", tidies=True)
    await asyncio.to_thread(made.start)
    try:
        yield made
    finally:
        made.kill()


async def died(hub: HubProcess, seam: str) -> None:
    """Raises: AssertionError when it went on."""
    for _ in range(100):
        if hub.ended:
            break
        await asyncio.sleep(0.01)  # upkeep runs after the pusher has its answer
    assert hub.ended, f"not died {seam}"
    assert await asyncio.to_thread(hub.died_at) == seam
    await asyncio.to_thread(hub.start)


@pytest.mark.parametrize("seam", FIRST)
async def test_r11_the_hub_dies_while_it_makes_a_repository(tmp_path: Path, hub: HubProcess, seam: str) -> None:
    async with machine(tmp_path, hub) as one:
        hub.arm(seam)
        with contextlib.suppress(MemoryFailure):
            await one.memory.prepare(AGENT, CARD)
        await died(hub, seam)
        await one.memory.prepare(AGENT, CARD)
        await pushed(hub, one, {one.commit("fact.md", note("blue"))})


async def test_r11_the_hub_dies_at_each_step_of_a_push(tmp_path: Path, hub: HubProcess) -> None:
    async with machine(tmp_path, hub) as one:
        await one.memory.prepare(AGENT, CARD)
        commits = {one.commit("fact.md", note("blue"))}
        await pushed(hub, one, commits)
        for seam in (seam for seam in SEAMS if seam not in FIRST):
            hub.arm(seam)
            commits.add(one.commit("fact.md", note(seam)))
            await one.end_turn()
            await died(hub, seam)
            await pushed(hub, one, commits)


@contextlib.asynccontextmanager
async def machine(folder: Path, hub: HubProcess) -> AsyncIterator[Machine]:
    one = Machine(folder / "one", None, remote=MemoryRemote(hub.url, lambda: hub.token("machine")))
    try:
        yield one
    finally:
        await one.memory.aclose()


async def pushed(hub: HubProcess, one: Machine, commits: set[str]) -> None:
    repository = hub.state / "git" / AGENT / "state.git"
    for _ in range(TRIES):
        if (await one.end_turn()).outcome in {SyncOutcome.PUSHED, SyncOutcome.CLEAN}:
            break
    await is_sound(repository)
    assert git(repository, "rev-parse", "main").strip() == one.published.head()
    assert commits <= set(git(repository, "rev-list", "main").split())


async def is_sound(repository: Path) -> None:
    """Looked at again where something is missing: the hub's upkeep goes on meanwhile, and puts loose objects into a
    pack that a look which has begun does not see. What is lost stays lost."""
    for _ in range(2):
        with contextlib.suppress(AssertionError):
            await asyncio.to_thread(git, repository, "fsck", "--full", "--strict")
            return
    await asyncio.to_thread(git, repository, "fsck", "--full", "--strict")


@pytest.mark.parametrize("side", ["before", "after"])
async def test_r11_the_hub_dies_while_it_changes_who_shares(hub: HubProcess, side: str) -> None:
    """As before the step, or as after it; and the person who asks again gets what was asked for."""
    await share(hub, {AGENT: "read"}, "team")

    async def dying(seam: str, method: str, path: str, body: object = None) -> None:
        hub.arm(f"{side} {seam}")
        with pytest.raises(OSError):
            await ask(hub, method, path, body)
        await died(hub, f"{side} {seam}")

    async def shared() -> dict[str, str]:
        listed = (await ask(hub, "GET", "/v1/repositories"))["repositories"]
        return {entry["agent_id"]: entry["permissions"] for one in listed for entry in one["agents"]}

    done = side == "after"
    attaching = ("PUT", f"/v1/repositories/team/agents/{AGENT}", {"permissions": "write"})
    await dying("writing who shares", *attaching)
    assert await shared() == {AGENT: "write" if done else "read"}
    await ask(hub, *attaching)
    await dying("moving a deleted memory", "DELETE", "/v1/repositories/team")
    assert await shared() == ({} if done else {AGENT: "write"})
    if not done:
        await ask(hub, "DELETE", "/v1/repositories/team")
    await dying("moving a deleted memory", "POST", "/v1/repositories/team/restore")
    assert await shared() == ({AGENT: "write"} if done else {})
    if not done:
        await ask(hub, "POST", "/v1/repositories/team/restore")
    assert await shared() == {AGENT: "write"}
