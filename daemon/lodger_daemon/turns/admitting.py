"""When the run of a step is written down: before anything of it is shown, and soon after the model has begun."""

import asyncio
from typing import Final

from lodger_daemon.turns.core import machine_events as told
from lodger_daemon.turns.core.states import Lease
from lodger_daemon.turns.desk import Desk, Step, TurnWork
from lodger_daemon.turns.services import finish_regardless
from lodger_daemon.turns.step_work import admit

SILENT_S: Final = 0.03
"""How long a step that has shown nothing may stay unwritten. A short call comes whole within it, and its run is then
written down in the commit of its end."""


class Admitting:
    """Belongs to the task that reads the stream, which calls `rest` before it leaves."""

    def __init__(self, desk: Desk, lease: Lease, work: TurnWork, step: Step) -> None:
        self._desk = desk
        self._lease = lease
        self._work = work
        self._step = step
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def owed(self) -> bool:
        """The model has begun, and nothing is written of it."""
        return self._timer is not None and not self._step.admitted

    def soon(self) -> None:
        """The model has said something that is not shown."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SILENT_S, self._begin)

    async def now(self) -> None:
        """Return once the run is committed, also when cancelled meanwhile."""
        if not self._step.admitted:
            await finish_regardless(self._begin())

    async def rest(self) -> None:
        """From here on nothing begins by itself, and nothing runs any more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None and not self._task.done():
            # Not awaited itself: what became of it is for `now` or for the commit that follows.
            await finish_regardless(_end_of(self._task))

    def _begin(self) -> asyncio.Task[None]:
        if self._task is None or (self._task.done() and not self._step.admitted):
            self._task = asyncio.get_running_loop().create_task(self._admit())
        return self._task

    async def _admit(self) -> None:
        await admit(self._desk, self._work, self._step)
        self._desk.work_of(self._lease)
        self._desk.feed(told.StepAdmitted(self._lease, self._step.run_id))


async def _end_of(task: asyncio.Task[None]) -> None:
    await asyncio.wait({task})
