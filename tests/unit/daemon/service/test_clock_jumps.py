"""The clock watch: what counts as a jump, and what is remembered of jumps."""

import asyncio

import pytest

from lodger_daemon.clock import MonoTime, WallTime
from lodger_daemon.service.clock_watch import KEPT, ClockWatch
from lodger_daemon.service.core.clock_jumps import JUMP_S, Jump, Reading, jump_between
from support.store_rows import HandClock


@pytest.mark.parametrize("by_s", [3600.0, -3600.0, 86400.0, JUMP_S, -JUMP_S])
def test_a_wall_clock_that_went_another_way_than_time_has_jumped(by_s: float) -> None:
    before = Reading(WallTime(1_000_000.0), MonoTime(50.0))
    assert jump_between(before, Reading(WallTime(1_000_030.0 + by_s), MonoTime(80.0))) == Jump(
        WallTime(1_000_030.0 + by_s), by_s
    )


@pytest.mark.parametrize("passed_s", [0.0, 60.0, 86400.0 * 30])
def test_time_that_passes_is_no_jump_and_neither_is_slewing(passed_s: float) -> None:
    before = Reading(WallTime(1_000_000.0), MonoTime(50.0))
    assert jump_between(before, Reading(WallTime(1_000_000.5 + passed_s), MonoTime(50.0 + passed_s))) is None


def test_each_jump_is_told_once_with_when_it_was_seen() -> None:
    clock = HandClock()
    watch = ClockWatch(clock)
    clock.pass_time(100.0)
    assert watch.jumps() == ()
    clock.wall_s -= 3600.0
    back = Jump(clock.wall(), -3600.0)
    assert watch.jumps() == (back,)
    clock.pass_time(10.0)
    assert watch.jumps() == (back,)
    for _ in range(KEPT + 3):
        clock.wall_s += 100.0
        watch.jumps()
    assert [jump.by_s for jump in watch.jumps()] == [100.0] * KEPT


async def test_a_jump_that_nobody_asked_about_is_seen_all_the_same() -> None:
    clock = HandClock()
    watch = ClockWatch(clock)
    clock.wall_s += 7.0
    looking = asyncio.create_task(watch.keep_looking())
    await asyncio.sleep(0)
    clock.wall_s -= 7.0
    await asyncio.sleep(0)
    assert [jump.by_s for jump in watch.jumps()] == [7.0, -7.0]
    looking.cancel()
