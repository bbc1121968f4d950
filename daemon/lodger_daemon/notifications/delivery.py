"""From the record of an ended task to a message in its conversation, once."""

import asyncio
import logging
import sqlite3
from typing import Final, Literal, Protocol, assert_never

from lodger_daemon.clock import Clock
from lodger_daemon.identity import ConversationKey
from lodger_daemon.inbox.core.items import Source
from lodger_daemon.notifications.contract import Task
from lodger_daemon.notifications.core.delivery import Step, next_step, notice_id
from lodger_daemon.notifications.core.words import notification
from lodger_daemon.store import inbox_rows, task_rows
from lodger_daemon.store.database import Database
from lodger_daemon.turns.contract import Accepted, InputMessage, Receipt, Submission
from lodger_daemon.waiting import set_within

LOOK_AGAIN_S: Final = 5.0
"""How long a notification in line, or one without room in it, is left before it is looked at again."""

logger = logging.getLogger(__name__)


class Line(Protocol):
    """Where notifications wait for their conversations."""

    async def submit_notice(
        self,
        key: ConversationKey,
        submission: Submission,
        kind: Literal["task_notification", "cron_prompt"],
        source: Source,
    ) -> Receipt: ...

    def device_changed(self, key: ConversationKey) -> None: ...


class Delivery:
    """Derives notifications from the task table until each has reached its conversation. The inbox takes one id once,
    so whatever a crash makes it do twice has one effect."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._line: Line | None = None
        self._woken = asyncio.Event()
        self._delivering: asyncio.Task[None] | None = None

    def to(self, line: Line) -> None:
        """Where to deliver; before `start`."""
        self._line = line

    def start(self) -> None:
        assert self._line is not None
        self._delivering = asyncio.create_task(self._keep_delivering(self._line))

    def tasks_changed(self, key: ConversationKey) -> None:
        """A conversation has other tasks than before: whoever watches it is shown so."""
        if self._line is not None:
            self._line.device_changed(key)

    def wake(self) -> None:
        """A task has ended."""
        self._woken.set()

    async def aclose(self) -> None:
        if self._delivering is not None:
            self._delivering.cancel()
            await asyncio.gather(self._delivering, return_exceptions=True)

    async def _keep_delivering(self, line: Line) -> None:
        while True:
            self._woken.clear()
            try:
                open_tasks = await self._database.read(task_rows.undelivered)
                closed = [await self._deliver(task, line) for task in open_tasks]
            except Exception:
                # A full disk, mostly. Nothing is lost: all of it stands in the table.
                logger.exception("notifications of background tasks are delayed")
                closed = [False]
            if all(closed):
                await self._woken.wait()
            else:
                await set_within(self._woken, LOOK_AGAIN_S, self._clock)

    async def _deliver(self, task: Task, line: Line) -> bool:
        """Whether nothing is left to do for this task."""

        def look(connection: sqlite3.Connection) -> Step:
            item = inbox_rows.get(connection, task.conversation, notice_id(task, task.notices))
            return next_step(item, len(inbox_rows.waiting(connection, task.conversation)))

        step = await self._database.read(look)
        match step:
            case Step.WAIT:
                return False
            case Step.SUBMIT:
                await self._submit(task, line)
                return False
            case Step.CLOSE:
                now = self._clock.wall()
                await self._database.write(lambda connection: task_rows.close(connection, task.number, now))
                return True
            case _:
                assert_never(step)

    async def _submit(self, task: Task, line: Line) -> None:
        assert task.end is not None
        attempt = task.notices + 1
        name = notice_id(task, attempt)
        message = InputMessage(name, notification(task, task.end), name)
        receipt = await line.submit_notice(
            task.conversation, Submission((message,)), "task_notification", "task_notification"
        )
        if isinstance(receipt, Accepted):
            # After it: a crash in between submits the same id again, which changes nothing.
            await self._database.write(lambda connection: task_rows.count_notice(connection, task.number, attempt))
