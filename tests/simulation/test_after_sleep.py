"""What a jump of the monotonic clock, as after a sleep or a stopped process, must not do to limits."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from lodger_daemon.turns.closing_work import STOP_LIMIT_S, stop_tasks
from lodger_daemon.turns.desk import Desk, TurnWork
from simulation.loop import VirtualLoop


def test_what_takes_a_moment_to_stop_is_waited_for_although_the_machine_slept_meanwhile() -> None:
    loop = VirtualLoop(lambda: 0.0, lambda: 0.0)
    notes: list[Any] = []

    async def slow_to_stop() -> None:
        try:
            await asyncio.sleep(1e6)
        finally:
            await asyncio.sleep(0.3)
            await asyncio.sleep(0.3)

    async def main() -> None:
        task = asyncio.create_task(slow_to_stop())
        await asyncio.sleep(0.01)
        desk = SimpleNamespace(waits_for_disk=False, key="a/b", publish=notes.append)
        work = SimpleNamespace(tasks={task}, turn_id="turn-1")
        stopping = asyncio.create_task(stop_tasks(cast("Desk", desk), cast("TurnWork", work)))
        await asyncio.sleep(0.01)
        loop.skip(STOP_LIMIT_S + 3600)
        await stopping
        assert task.done()

    loop.run_until_complete(main())
    loop.close()
    assert notes == []
