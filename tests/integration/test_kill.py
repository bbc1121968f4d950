"""`kill -9` of each of our processes, at every named seam and at seeded random moments: nothing lost, nothing twice.

A seam is a step on which a promise rests (tests/support/seam_launcher.py). Which seams there are is found out by
watching pieces of work that nothing disturbs; then each passage is died at, before and after it. The list of those hit
is printed. ATTACKS.md R1 to R5.
"""

import asyncio
import contextlib
import os
import random
import signal
import textwrap
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import pytest

from support.kill_rig import Kind, Point, Rig, Side, Work, expect
from support.machine_processes import descendants
from support.program_client import bash, script
from support.programs import new_world, until

pytestmark = pytest.mark.timeout(3700)

NAMED_S = 110.0
RANDOM_S = 78.0
"""What `make test` spends on each; `make soak` goes through all seams and 1,000 moments."""
BASE_SEEDS = 20
"""Random moments that are tried however long it takes, the same in every run; then fresh ones until the time is up."""
MOMENTS = 100
MOMENTS_IN_SOAK = 1000
LANES = 2
"""Machines that are tormented at the same time, one for each core that is surely there."""
EVERY_PASSAGE = ("commit call_work", "commit step_work", "box RunCommand", "model ", "send to box", "commit event_log")
"""Seams whose last passage in a turn is another promise than the first."""
BOX_START = ("launcher.py", "box.json")
"""Seams that are only passed when a box is started."""
FAMILIES = (
    "commit", "send to client", "send to hub", "send to box", "spawn", "end of git", "rename", "box RunCommand",
    "model request", "model answer", "memory moving refs", "memory unpacking", "memory pushing", "relay",
    "git host",
)  # fmt: skip
"""Each must be died at before and after; a change that renames a wrapped function may not empty one unnoticed."""
OTHER = "other"

Victim = Literal["daemon", "hub", "starting daemon"]


@dataclass(frozen=True, slots=True)
class Kill:
    victim: Victim
    kind: Kind
    point: Point

    @property
    def over_hub(self) -> bool:
        """Whether the person talks to the machine through the hub."""
        return self.victim == "hub" or self.point.seam.startswith("send to hub")

    @property
    def kin(self) -> tuple[str, Side]:
        """The family of its seam, and the side of it."""
        family = next((name for name in FAMILIES if self.point.seam.startswith(name)), OTHER)
        return family, self.point.side

    def __str__(self) -> str:
        return f"{self.victim}, {self.kind} work, {self.point}"


@dataclass
class Report:
    hit: list[Kill] = field(default_factory=list)
    missed: list[Kill] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)

    def owed(self, todo: deque[Kill]) -> Kill | None:
        """What a slow machine must do besides: a family may be left out neither because its turn never came, nor
        because the one point of it that was tried was not passed again. Nor may nothing have been in doubt."""
        died = {kill.kin for kill in self.hit}
        if not self.outcomes["unknown"] and todo:
            return todo[0]
        return next((kill for kill in todo if kill.kin[0] != OTHER and kill.kin not in died), None)

    def lines(self) -> list[str]:
        told = [f"killed at {len(self.hit)} points, {len(self.missed)} not passed again; calls: {dict(self.outcomes)}"]
        for victim in ("daemon", "starting daemon", "hub"):
            names: dict[str, set[str]] = {}
            for kill in self.hit:
                if kill.victim == victim:
                    names.setdefault(kill.point.seam, set()).add(kill.point.side[0])
            listed = ", ".join(
                f"{name} ({'+'.join(sorted(sides, reverse=True))})" for name, sides in sorted(names.items())
            )
            told += textwrap.wrap(f"{victim}: {listed}", 118, subsequent_indent="    ")
        if self.missed:
            told += textwrap.wrap(
                f"not passed again: {'; '.join(map(str, self.missed))}", 118, subsequent_indent="    "
            )
        return told


@pytest.fixture
def soak(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--soak"))


@pytest.fixture
async def rigs() -> AsyncIterator[list[Rig]]:
    async with new_world("kill") as world:
        made = [Rig(world, f"m{number}x") for number in range(LANES)]
        try:
            await asyncio.gather(*(rig.start() for rig in made))
            for rig in made:  # the first agent, so that later work finds one
                await undisturbed(rig, "plain")
            yield made
        finally:
            for rig in made:
                await rig.close()


async def undisturbed(rig: Rig, kind: Kind, over_hub: bool = False) -> None:
    work = rig.work(kind)
    await rig.endpoint.reset()
    await rig.play(work, over_hub=over_hub)
    expect(work.finished, True, f"{kind} work without a kill is done\n{rig.world_words()}")
    expect(set(await rig.check(work, "no kill", set())), {"success"}, "all its calls succeed")


def points(passages: dict[str, int], known: set[tuple[str, str]]) -> list[Point]:
    """First passages of seams that are not known yet, and last ones of those where that is another promise."""
    found = []
    for name, count in passages.items():
        seam, _, side = name.rpartition("|")
        if seam.startswith("send to client lodger_"):
            continue  # what only this test asks for
        kind: Side = "before" if side == "before" else "after"
        if (seam, side) not in known:
            known.add((seam, side))
            found.append(Point(seam, kind))
        if count > 1 and seam.startswith(EVERY_PASSAGE):
            found.append(Point(seam, kind, count))
    return found


async def all_points(rig: Rig) -> list[Kill]:
    """What there is to die at, from work that nothing disturbs."""
    assert rig.daemon is not None and rig.hub is not None
    kills: list[Kill] = []
    known: set[tuple[str, str]] = set()
    kinds: tuple[Kind, ...] = ("plain", "asking", "founding")
    for kind in kinds:
        await rig.daemon.passages()
        await undisturbed(rig, kind)
        kills += [Kill("daemon", kind, point) for point in points(await rig.daemon.passages(), known)]
    await rig.hub.passages()
    await rig.daemon.passages()
    await undisturbed(rig, "plain", over_hub=True)
    relayed = [one for one in points(await rig.daemon.passages(), known) if one.seam.startswith("send to hub")]
    kills += [Kill("daemon", "plain", point) for point in relayed]
    hub_known: set[tuple[str, str]] = set()
    kills += [Kill("hub", "plain", point) for point in points(await rig.hub.passages(), hub_known)]
    await undisturbed(rig, "founding", over_hub=True)
    kills += [Kill("hub", "founding", point) for point in points(await rig.hub.passages(), hub_known)]
    # What a daemon does that finds a turn under way.
    work = rig.work("plain")
    await rig.daemon.arm(Point("send to box", "after", 2))
    await rig.play(work)
    await rig.finish(work)
    found = [one for one in points(await rig.daemon.passages(), set()) if not one.seam.startswith("send to client")]
    return in_turns(kills + [Kill("starting daemon", "plain", point) for point in found])


def in_turns(kills: list[Kill]) -> list[Kill]:
    """One of each family in turn, so that a limit on time cuts every family a little and none wholly: both sides of
    each family first, whoever dies there, then those of every victim."""
    families: dict[tuple[str, str, str], deque[Kill]] = {}
    first: dict[tuple[str, str], Kill] = {}
    for kill in kills:
        if first.setdefault(kill.kin, kill) is not kill:
            families.setdefault((*kill.kin, kill.victim), deque()).append(kill)
    ordered = list(first.values())
    while any(families.values()):
        ordered += [queue.popleft() for queue in families.values() if queue]
    return ordered


async def strike(rig: Rig, kill: Kill, report: Report) -> None:
    """One kill, one restart, all promises."""
    assert rig.daemon is not None and rig.hub is not None
    await rig.revive()
    await rig.endpoint.reset()
    if kill.point.seam.endswith(BOX_START):
        await asyncio.to_thread(rig.end_boxes)
    boxes = rig.runner_pids()
    work = rig.work(kill.kind)
    if kill.victim == "starting daemon":
        mid_turn = Point("send to box", "after", 2) if rig.works % 2 else Point("box RunCommand", "before")
        await rig.daemon.arm(mid_turn)
        await rig.play(work)
        await rig.daemon_program.wait()
        await rig.start_daemon(arm=kill.point)
        await rig.play(work)
    else:
        victim = rig.hub if kill.victim == "hub" else rig.daemon
        await victim.arm(kill.point)
        await rig.play(work, over_hub=kill.over_hub)
    victim = rig.hub if kill.victim == "hub" else rig.daemon
    await rig.finish(work)
    if victim.hit is not None or not await victim.arm(None):
        assert victim.program is not None
        await victim.program.wait()  # it may have died only now, of a step that comes after the turn
    hit = victim.hit is not None
    await rig.revive()
    (report.hit if hit else report.missed).append(kill)
    report.outcomes.update(await rig.check(work, f"killed at: {kill}", boxes))
    if kill.kind == "founding":
        await end_boxes_of(rig, work)


async def end_boxes_of(rig: Rig, work: Work) -> None:
    """Agents that were founded for one kill need their boxes no longer."""
    assert work.runtime is not None
    await asyncio.to_thread(rig.end_boxes, work.runtime["agent_id"])


T = TypeVar("T")


async def in_lanes(
    rigs: list[Rig],
    todo: "deque[T]",
    strike_one: Callable[[Rig, T], Awaitable[None]],
    until_mono: float,
    owed: Callable[["deque[T]"], "T | None"] = lambda todo: None,
) -> None:
    """Each rig takes the next one when it is free, until none is left or time is up, and then those that are owed."""

    def following() -> "T | None":
        if todo and time.monotonic() < until_mono:
            return todo[0]
        return owed(todo)

    async def lane(rig: Rig) -> None:
        while (one := following()) is not None:
            todo.remove(one)
            await strike_one(rig, one)

    async with asyncio.TaskGroup() as group:
        for rig in rigs:
            group.create_task(lane(rig))


async def test_every_named_seam(rigs: list[Rig], capsys: pytest.CaptureFixture[str], soak: bool) -> None:
    began = time.monotonic()
    report = Report()
    kills = await all_points(rigs[0])
    todo = deque(kills)
    limit_s = 3600.0 if soak else NAMED_S
    try:
        await in_lanes(rigs, todo, lambda rig, kill: strike(rig, kill, report), began + limit_s, report.owed)
    finally:
        with capsys.disabled():
            print(f"\nnamed seams, {time.monotonic() - began:.0f} s:", *report.lines(), sep="\n  ")
            print(f"  {len(todo)} points were left when time was up" if todo else "  no point was left out")
    for family in FAMILIES:
        sides = {kill.point.side for kill in report.hit if kill.point.seam.startswith(family)}
        assert sides == {"before", "after"}, f"nothing died {sides} a seam of the family {family!r}"
    assert report.outcomes["unknown"], "no call was ever in doubt: the kills fell nowhere that matters"
    assert len(report.missed) <= (len(report.hit) + len(report.missed)) // 4, report.missed


@dataclass
class Moments:
    """What became of kills at random moments."""

    seeds: list[int] = field(default_factory=list)
    victims: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)


async def strike_at_random(rig: Rig, seed: int, moments: Moments) -> None:
    """All that happens is drawn from the seed, except how fast the machine is."""
    draw = random.Random(seed)
    kind: Kind = draw.choice(("plain", "plain", "asking", "long", "founding"))
    victims = draw.choices(("daemon", "hub", "worker", "box"), (6, 2, 1, 1), k=draw.choice((1, 1, 2)))
    delays_s = [draw.uniform(0, 0.6) for _ in victims]
    await rig.revive()
    await rig.endpoint.reset()
    boxes = rig.runner_pids()
    work = rig.work(kind)
    playing = asyncio.create_task(rig.play(work, over_hub="hub" in victims))
    for victim, delay_s in zip(victims, delays_s, strict=True):
        await asyncio.wait({playing}, timeout=delay_s)
        if rig.daemon_program.ended:
            await rig.revive()  # the second kill falls into the recovery from the first
            playing = asyncio.create_task(chained(playing, rig.play(work)))
            await asyncio.sleep(delay_s)
        killed = await slay(rig, victim)
        boxes -= killed
        moments.victims[victim] += 1
    await asyncio.wait({playing}, timeout=60)
    await rig.finish(work)
    outcomes = await rig.check(work, f"seed {seed}: {kind} work, {victims} after {delays_s}", boxes)
    moments.outcomes.update(outcomes)
    moments.seeds.append(seed)
    if kind == "founding":
        await end_boxes_of(rig, work)


async def chained(first: "asyncio.Task[None]", then: Coroutine[Any, Any, None]) -> None:
    await first
    await then


async def slay(rig: Rig, victim: str) -> set[int]:
    """Kill it now; returns the runners that die with it."""
    match victim:
        case "daemon":
            await rig.daemon_program.killed()
        case "hub":
            await rig.hub_program.killed()
        case "worker":
            for seen in rig.workers():
                os.kill(seen.pid, signal.SIGKILL)
        case _:
            found = [box.record for box in rig.home.boxes()]
            for record in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(record.outer_pid, signal.SIGKILL)
            return {record.runner_pid for record in found}
    return set()


async def test_random_moments(rigs: list[Rig], capsys: pytest.CaptureFixture[str], soak: bool) -> None:
    began = time.monotonic()
    moments = Moments()
    fresh = max(BASE_SEEDS, int(time.time()))

    def one(rig: Rig, seed: int) -> Awaitable[None]:
        return strike_at_random(rig, seed, moments)

    try:
        await in_lanes(rigs, deque(range(BASE_SEEDS)), one, began + 3600)
        limit_s = 3600.0 if soak else RANDOM_S
        more = (MOMENTS_IN_SOAK if soak else MOMENTS) - BASE_SEEDS
        await in_lanes(rigs, deque(range(fresh, fresh + more)), one, began + limit_s)
    finally:
        with capsys.disabled():
            done = moments.seeds
            took_s = time.monotonic() - began
            print(f"\nrandom moments, {took_s:.0f} s: {len(done)}, seeds 0 to {BASE_SEEDS - 1}, then from {fresh}")
            print(f"  killed: {dict(moments.victims)}; calls: {dict(moments.outcomes)}")


async def test_a_model_worker_that_dies_costs_a_try_and_nothing_else(rigs: list[Rig]) -> None:
    rig = rigs[0]
    for moment in ("idle", "before the first chunk", "amid the text", "while a tool runs"):
        # Long enough to be found at it.
        slow = {"text": "piece by piece it comes", "chunks": 8, "delay_ms": 300 if moment == "amid the text" else 60}
        await rig.endpoint.reset()
        work = rig.work("long")
        work.text = f"{work.tag}: please. " + script(
            {"calls": [bash(f"echo {work.tag}-a >> marker.txt; sleep 0.5")]},
            {"first_ms": 400, **slow, "calls": [bash(f"echo {work.tag}-b >> marker.txt")]},
            {"text": work.done},
        )
        if moment == "idle":
            await slay(rig, "worker")
        playing = asyncio.create_task(rig.play(work))
        if moment == "while a tool runs":
            await until(lambda work=work: f"{work.tag}-a" in rig.home.marks(), "the command runs")
            await slay(rig, "worker")
        elif moment != "idle":
            await rig.endpoint.asked(2)
            if moment == "amid the text":
                await asyncio.sleep(0.65)  # the endpoint's own times: 0.4 s of silence, then a piece every 300 ms
            assert await rig.endpoint.open_answers() == 1
            await slay(rig, "worker")
        await playing
        assert work.finished, f"{moment}: {rig.world_words()}"
        assert set(await rig.check(work, f"worker killed: {moment}", set())) == {"success"}
        answers = rig.rows("SELECT content FROM messages WHERE kind = 'assistant' AND content LIKE ?", "%by piece it%")
        assert len([text for (text,) in answers if f"{work.tag}-b" in text]) == 1, answers


@pytest.mark.parametrize("part", ["outer", "runner"])
async def test_a_box_that_dies_leaves_its_call_in_doubt(rigs: list[Rig], part: str) -> None:
    """Also when the daemon dies with it: the call is neither repeated nor called a failure."""
    rig = rigs[0]
    for with_daemon in (False, True):
        await rig.endpoint.reset()
        work = rig.work("long")
        work.text = f"{work.tag}: please. " + script(
            {"calls": [bash(f"echo {work.tag}-a >> marker.txt; sleep 30; echo {work.tag}-late >> marker.txt")]},
            {"calls": [bash(f"echo {work.tag}-b >> marker.txt")]},
            {"text": work.done},
        )
        playing = asyncio.create_task(rig.play(work))
        await until(lambda work=work: f"{work.tag}-a" in rig.home.marks(), "the command runs")
        boxes = [box.record for box in rig.home.boxes() if box.record.key.workspace == str(rig.home.workspace)]
        trees = [seen for record in boxes for seen in descendants(record.outer_pid)]
        if with_daemon:
            await rig.daemon_program.killed()
        for record in boxes:
            os.kill(record.outer_pid if part == "outer" else record.runner_pid, signal.SIGKILL)
        await until(lambda trees=trees: not [seen for seen in trees if seen.alive], "all in the box ends with it")
        await playing
        await rig.finish(work)
        outcomes = await rig.check(work, f"{part} of the box killed", set())
        assert Counter(outcomes) == Counter(["unknown", "success"])
        assert [mark for mark in rig.home.marks() if mark.startswith(work.tag)] == [f"{work.tag}-a", f"{work.tag}-b"]
