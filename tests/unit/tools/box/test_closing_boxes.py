"""Once a daemon has let go of its boxes, none becomes known to it any more, whatever was under way: no start, no
adoption and no probe."""

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from lodger_sandbox.contract import BoxRequest, DetachedBox, RunnerStart
from lodger_tools.box import record as records
from lodger_tools.box.contract import BoxCall, BoxKey, BoxUnavailable, RunCommand
from lodger_tools.box.link import BoxLink
from lodger_tools.box.manager import BoxManager
from support.plain_runner import PlainStarter, plain_request

LIMIT_S = 10.0


class Held:
    """One step on the way to a box, held until it is let go. The other steps pass at once."""

    def __init__(self, step: str) -> None:
        self.step = step
        self.starter = PlainStarter()
        self.reached = asyncio.Event()
        self.told: list[Path] = []
        self.ended: list[Path] = []
        self._loop = asyncio.get_running_loop()
        self._go = threading.Event()
        self._going = asyncio.Event()

    def request(self, key: BoxKey) -> BoxRequest:
        self._hold_thread("request")
        return plain_request(key)

    def start_detached(self, request: BoxRequest, runner: RunnerStart) -> DetachedBox:
        started = self.starter(request, runner)
        if self.step == "greeting":
            os.kill(started.runner_pid, signal.SIGSTOP)
        self._hold_thread("start")
        return started

    async def box_started(self, found: records.FoundBox) -> None:
        self.told.append(found.folder)
        if self.step == "watcher" or (self.step == "second watcher" and len(self.told) == 2):
            self.reached.set()
            await self._going.wait()

    def box_ended(self, found: records.FoundBox) -> None:
        self.ended.append(found.folder)

    def let_go(self) -> None:
        self._go.set()
        self._going.set()
        if self.step == "greeting":
            for process in self.starter.started:
                os.kill(process.pid, signal.SIGCONT)

    def _hold_thread(self, step: str) -> None:
        if self.step == step:
            self._loop.call_soon_threadsafe(self.reached.set)
            assert self._go.wait(LIMIT_S)


class Rig:
    def __init__(self, folder: Path) -> None:
        self.boxes = folder / "boxes"
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        self.key = BoxKey("agent-1", str(self.workspace))
        self.starters: list[PlainStarter] = []
        self.managers: list[BoxManager] = []

    def held(self, step: str) -> tuple[Held, BoxManager]:
        held = Held(step)
        self.starters.append(held.starter)
        manager = BoxManager(self.boxes, held.request, start_detached=held.start_detached, watcher=held)
        self.managers.append(manager)
        return held, manager

    def call(self, name: str = "call") -> BoxCall:
        return BoxCall(name, RunCommand("echo x >>marks"), str(self.workspace))

    def marks(self) -> bool:
        return (self.workspace / "marks").exists()

    async def left(self, *others: BoxKey) -> records.FoundBox:
        """A box of an earlier daemon, in which something runs."""
        _, earlier = self.held("none")
        for key in (self.key, *others):
            await earlier.run(key, BoxCall("earlier", RunCommand("sleep 60 >/dev/null 2>&1 &"), str(self.workspace)))
        await earlier.aclose()
        found = records.find_boxes(self.boxes)
        assert len(found) == 1 + len(others)
        return found[0]


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    for manager in rig.managers:
        await manager.aclose()
    for starter in rig.starters:
        starter.end_all()


async def closed_amid(held: Held, manager: BoxManager) -> None:
    """Let go of all boxes while that step is held, which goes on only then."""
    await asyncio.wait_for(held.reached.wait(), LIMIT_S)
    closing = asyncio.create_task(manager.aclose())
    await asyncio.sleep(0)
    held.let_go()
    await asyncio.wait_for(closing, LIMIT_S)


@pytest.mark.parametrize("step", ["request", "start", "greeting", "watcher"])
async def test_a_box_that_was_being_started_is_ended_and_nothing_ran_in_it(
    rig: Rig, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, manager = rig.held(step)
    greeted = BoxLink.greeted

    async def hold(link: BoxLink) -> None:
        if step == "greeting":
            held.reached.set()
        await greeted(link)

    monkeypatch.setattr(BoxLink, "greeted", hold)
    running = asyncio.create_task(manager.run(rig.key, rig.call()))
    await closed_amid(held, manager)
    # Ended by the time it has closed: what comes next may be the end of this process.
    assert records.find_boxes(rig.boxes) == ()
    with pytest.raises(BoxUnavailable, match="nothing was run"):
        await running
    assert manager.statuses() == ()
    assert len(held.told) == (step == "watcher"), "nobody is told of a box of a closed daemon"
    assert set(held.told) <= set(held.ended), "whoever was told of it is told of its end"
    assert not rig.marks()


@pytest.mark.parametrize("others", [1, 5])
async def test_those_that_wait_for_the_same_start_start_no_other_box(rig: Rig, others: int) -> None:
    held, manager = rig.held("start")
    calls = [asyncio.create_task(manager.run(rig.key, rig.call(f"call-{n}"))) for n in range(1 + others)]
    await closed_amid(held, manager)
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [BoxUnavailable] * (1 + others)
    assert len(held.starter.started) == 1
    assert records.find_boxes(rig.boxes) == ()


@pytest.mark.parametrize("step", ["watcher", "request"])
async def test_a_box_that_was_being_adopted_is_left_to_the_next_daemon(rig: Rig, step: str) -> None:
    found = await rig.left()
    held, manager = rig.held(step)
    starting = asyncio.create_task(manager.start())
    await closed_amid(held, manager)
    await starting
    assert manager.statuses() == ()
    assert held.ended == [] and records.is_alive(found.folder)
    _, later = rig.held("none")
    await later.start()
    [status] = later.statuses()
    assert (status.key, status.leftovers) == (rig.key, 1)


ASKED: dict[str, Callable[[BoxManager, Rig], object]] = {
    "start": lambda manager, rig: manager.start(),
    "run": lambda manager, rig: manager.run(rig.key, rig.call()),
    "run_a_while": lambda manager, rig: manager.run_a_while(rig.key, rig.call(), None, 1.0),
    "begin": lambda manager, rig: manager.begin(rig.key, rig.call()),
    "collect": lambda manager, rig: manager.collect(rig.key, "earlier"),
    "collect_a_while": lambda manager, rig: manager.collect_a_while(rig.key, "earlier", 1.0),
    "watch": lambda manager, rig: manager.watch(rig.key, "earlier"),
    "read": lambda manager, rig: manager.read(rig.key, "earlier", 0, 10),
    "write": lambda manager, rig: manager.write(rig.key, "earlier", b"x"),
    "cancel": lambda manager, rig: manager.cancel(rig.key, "earlier"),
    "stop_all": lambda manager, rig: manager.stop_all(rig.key),
    "stop_leftovers": lambda manager, rig: manager.stop_leftovers(rig.key),
    "end": lambda manager, rig: manager.end(rig.key),
    "retire_changed": lambda manager, rig: manager.retire_changed(rig.key.agent_id),
    "leave": lambda manager, rig: manager.leave(),
    "aclose": lambda manager, rig: manager.aclose(),
}


def test_everything_that_can_be_asked_of_boxes_is_tried_below() -> None:
    asked = {name for name, what in vars(BoxManager).items() if not name.startswith("_") and callable(what)}
    assert asked - {"statuses"} == set(ASKED)


@pytest.mark.parametrize("started", [True, False])
@pytest.mark.parametrize("name", ASKED)
async def test_whatever_is_asked_of_closed_boxes_none_becomes_known(rig: Rig, name: str, started: bool) -> None:
    found = await rig.left()
    held, manager = rig.held("none")
    if started:
        await manager.start()
    await manager.aclose()
    asked = ASKED[name](manager, rig)
    assert asyncio.iscoroutine(asked)
    if name in ("run", "run_a_while", "begin"):
        with pytest.raises(BoxUnavailable, match="nothing was run"):
            await asked
    else:
        assert not await asked
    assert manager.statuses() == ()
    assert held.starter.started == []
    assert [box.folder for box in records.find_boxes(rig.boxes)] == [found.folder]
    assert not rig.marks()


async def test_whoever_gives_up_amid_the_adoption_makes_no_box_known_twice(rig: Rig) -> None:
    other = BoxKey("agent-2", str(rig.workspace))
    await rig.left(other)
    held, manager = rig.held("second watcher")
    given_up = asyncio.create_task(manager.start())
    await asyncio.wait_for(held.reached.wait(), LIMIT_S)
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    assert len(manager.statuses()) == 1
    held.let_go()
    await manager.start()
    assert sorted(status.key.agent_id for status in manager.statuses()) == ["agent-1", "agent-2"]
