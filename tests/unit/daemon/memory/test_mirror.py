"""How the copy elsewhere stands, over restarts of the daemon. Stock `git http-backend` on the other side."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lodger_daemon.memory.contract import SyncOutcome
from lodger_daemon.memory.core.git_addresses import parse_git_address
from lodger_daemon.memory.core.mirror_state import MirrorState, mirror_from_json, mirror_to_json
from lodger_daemon.memory.mirror import MirrorStatus
from lodger_daemon.memory.remote import ForeignRemote
from support.foreign_git_host import running_foreign_host
from support.git_host_server import TOKEN, RunningHost
from support.memory_machines import AGENT, CARD, Machine, QuickClock
from support.patience import LIMIT_S
from support.plain_boxes import agent_git


def mirror_at(base_url: str, token: str = TOKEN) -> ForeignRemote:
    with_user = base_url.replace("http://", "http://letta@")
    return ForeignRemote(parse_git_address(f"{with_user}/v1/git/{{agent}}/state.git"), lambda: token)


def main_at(root: Path) -> str:
    return agent_git(root / "v1" / "git" / AGENT / "state.git", "rev-parse", "main")


def status_of(machine: Machine) -> MirrorStatus:
    status = machine.memory.mirror_status(AGENT)
    assert status is not None
    return status


async def settled(machine: Machine) -> MirrorStatus:
    assert machine.memory._mirror is not None
    await machine.memory._mirror.settled(AGENT, LIMIT_S)
    return status_of(machine)


async def test_a_failure_outlives_the_daemon_and_ends_when_the_mirror_is_level(
    tmp_path: Path, hub: RunningHost
) -> None:
    with running_foreign_host(tmp_path / "host", AGENT) as base_url:
        one = Machine(tmp_path / "a", hub, mirror=mirror_at(base_url, "a wrong token"))
        await one.memory.prepare(AGENT, CARD)
        assert (await one.end_turn()).outcome is SyncOutcome.PUSHED
        failed = await settled(one)
        head = one.published.head()
        await one.memory.aclose()
        assert (failed.head, bool(failed.at), bool(failed.fault)) == (None, True, True)

        restarted = Machine(tmp_path / "a", hub, mirror=mirror_at(base_url))
        assert status_of(restarted) == failed
        await restarted.memory.start()
        level = await settled(restarted)
        await restarted.memory.aclose()
        assert (level.head, level.fault) == (head, "")
        assert main_at(tmp_path / "host") == head

        again = Machine(tmp_path / "a", hub, mirror=mirror_at(base_url))
        assert status_of(again) == level
        await again.memory.aclose()


async def test_another_mirror_gets_everything_and_is_believed_to_have_nothing(tmp_path: Path, hub: RunningHost) -> None:
    with (
        running_foreign_host(tmp_path / "first", AGENT) as first,
        running_foreign_host(tmp_path / "second", AGENT) as second,
    ):
        one = Machine(tmp_path / "a", hub, mirror=mirror_at(first))
        await one.memory.prepare(AGENT, CARD)
        await one.end_turn()
        head = (await settled(one)).head
        await one.memory.aclose()
        assert main_at(tmp_path / "first") == head == one.published.head()

        other = Machine(tmp_path / "a", hub, mirror=mirror_at(second, "a wrong token"))
        assert status_of(other) == MirrorStatus(None)
        await other.memory.start()
        assert (await settled(other)).head is None
        await other.memory.aclose()

        other = Machine(tmp_path / "a", hub, mirror=mirror_at(second))
        await other.memory.start()
        assert (await settled(other)).head == head == main_at(tmp_path / "second")
        await other.memory.aclose()


@dataclass(slots=True)
class WaitingClock(QuickClock):
    """Long waits end when told."""

    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def sleep(self, delay_s: float) -> None:
        self.waits.append(delay_s)
        if delay_s >= 2.5:
            await self.go_on.wait()


async def test_what_failed_is_tried_again_without_anybody_asking(tmp_path: Path) -> None:
    tokens = iter(("wrong", "wrong"))
    with running_foreign_host(tmp_path / "host", AGENT) as base_url:
        address = mirror_at(base_url).address
        mirror = ForeignRemote(address, lambda: next(tokens, TOKEN))
        clock = WaitingClock()
        one = Machine(tmp_path / "a", None, mirror=mirror, clock=clock)
        try:
            await one.memory.prepare(AGENT, CARD)
            await one.end_turn()
            assert (await settled(one)).fault
            clock.go_on.set()
            assert one.memory._mirror is not None
            await asyncio.wait({one.memory._mirror._later[AGENT]}, timeout=LIMIT_S)
            assert (await settled(one)).fault == ""
            assert main_at(tmp_path / "host") == one.published.head()
        finally:
            await one.memory.aclose()


async def test_a_daemon_that_stops_in_the_midst_takes_the_mirror_for_no_worse(tmp_path: Path) -> None:
    pushing = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop.call_soon(pushing.set)
        await reader.read()
        writer.close()

    silent = await asyncio.start_server(connected, "127.0.0.1", 0)
    base_url = f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}"
    one = Machine(tmp_path / "a", None, mirror=mirror_at(base_url))
    await one.memory.prepare(AGENT, CARD)
    await one.end_turn()
    async with asyncio.timeout(LIMIT_S):
        await pushing.wait()
        await one.memory.aclose()
    restarted = Machine(tmp_path / "a", None, mirror=mirror_at(base_url))
    assert status_of(restarted) == status_of(one) == MirrorStatus(None)
    await restarted.memory.aclose()
    silent.close()


STATE = MirrorState("https://h/a", "a" * 40, 12.5, "why", 3)


def test_what_is_stored_comes_back() -> None:
    assert mirror_from_json(mirror_to_json(STATE), STATE.url) == STATE


@pytest.mark.parametrize(
    ("text", "url"),
    [
        (mirror_to_json(STATE), "https://h/b"),
        ("", "https://h/a"),
        ("[]", "https://h/a"),
        ('{"url": "https://h/a"}', "https://h/a"),
        (mirror_to_json(STATE).replace("12.5", '"noon"'), STATE.url),
        ("[" * 5000, STATE.url),
    ],
)
def test_what_cannot_be_read_or_tells_of_another_is_none(text: str, url: str) -> None:
    assert mirror_from_json(text, url) == MirrorState()
