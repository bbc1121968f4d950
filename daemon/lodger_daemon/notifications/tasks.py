"""Background tasks at work: started or left to run, watched to their ends, looked at and stopped by the agent."""

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from lodger_daemon.clock import Clock, WallTime
from lodger_daemon.identity import CallKey, ConversationKey
from lodger_daemon.network.contract import WorkInBox
from lodger_daemon.notifications.contract import Task, TaskEnd, TaskNumber, TaskStatus
from lodger_daemon.notifications.core import words
from lodger_daemon.notifications.delivery import Delivery
from lodger_daemon.notifications.sessions import Sessions
from lodger_daemon.store import task_rows
from lodger_daemon.store.database import Database
from lodger_daemon.store.errors import StateConflict
from lodger_daemon.store.patience import until_stored
from lodger_daemon.turns.services import finish_regardless
from lodger_daemon.waiting import set_within
from lodger_tools.box.contract import BoxKey
from lodger_tools.catalogue.arguments import BadArguments
from lodger_tools.catalogue.background_tasks import (
    OUTPUT_TOOL,
    STOP_TOOL,
    TASK_TOOLS,
    OutputWish,
    bind_output,
    bind_stop,
)
from lodger_tools.catalogue.exec_sessions import EXEC_TOOL, INPUT_TOOL
from lodger_tools.json_value import JsonObject
from lodger_tools.toolbox_contract import (
    BackgroundCall,
    BackgroundEnd,
    BackgroundShell,
    EffectUnknown,
    StillRunning,
    ToolOutcome,
    ToolRequest,
)

T = TypeVar("T")

STOP_WITHIN_S: Final = 8.0
"""TERM, two seconds, KILL, and a machine under load."""
STORE_RETRY_S: Final = 5.0
KEPT_S: Final = 30 * 24 * 3600.0
"""How long the record of a task is kept whose end was told."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Watched:
    task: Task
    watching: asyncio.Task[None] | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class Tasks:
    """Implements `TaskDesk`. `start` it once conversations have been taken up; `aclose` it before boxes are let go."""

    def __init__(
        self,
        database: Database,
        shell: BackgroundShell,
        clock: Clock,
        foreground_s: float,
        delivery: Delivery,
    ) -> None:
        """
        Args:
            foreground_s: a command that runs longer becomes a task; 0 = only those that ask for it.
        """
        self._database = database
        self._shell = shell
        self._clock = clock
        self._foreground_s = foreground_s
        self._delivery = delivery
        self._sessions = Sessions(self, shell, clock)
        self._watched: dict[TaskNumber, _Watched] = {}
        self._closed = False

    async def start(self) -> None:
        """Watch what an earlier daemon left running, and tell of what ended without being told."""
        now = self._clock.wall()
        await self._database.write(lambda connection: task_rows.forget(connection, WallTime(now - KEPT_S)))
        for task in await self._database.read(task_rows.running):
            self._watch(task)
        self._delivery.start()

    async def aclose(self) -> None:
        """What runs goes on in its box, and the next daemon watches it."""
        self._closed = True
        await self._delivery.aclose()
        watching = [one.watching for one in self._watched.values() if one.watching is not None]
        for one in watching:
            one.cancel()
        await asyncio.gather(*watching, return_exceptions=True)

    # -- what turns ask --

    def serves(self, request: ToolRequest) -> bool:
        if request.tool_name in TASK_TOOLS or request.tool_name in (EXEC_TOOL, INPUT_TOOL):
            return True
        if not self._shell.starts_command(request):
            return False
        return self._foreground_s > 0 or self._shell.wants_background(request)

    async def run(
        self, call: CallKey, request: ToolRequest, on_output: Callable[[str], None] | None = None
    ) -> ToolOutcome:
        if request.tool_name in TASK_TOOLS:
            return await self._look_after(call, request)
        if request.tool_name in (EXEC_TOOL, INPUT_TOOL):
            return await self._sessions.run(call, request, on_output)
        if self._shell.wants_background(request):
            return await self._begin(call, request)
        result = await self._shell.run_a_while(request, on_output, self._foreground_s)
        return await self._moved(call, request, result) if isinstance(result, StillRunning) else result

    async def collect(self, call: CallKey, request: ToolRequest) -> ToolOutcome | None:
        if request.tool_name in TASK_TOOLS:
            # Looking again is harmless, and so is stopping what was stopped.
            return await self._look_after(call, request)
        if request.tool_name == INPUT_TOOL:
            # It may have been typed: typing again would not be harmless.
            return None
        task = await self._database.read(lambda connection: task_rows.of_call(connection, call))
        if task is None:
            if self._shell.wants_background(request):
                return None
            result = await self._shell.collect_a_while(request, self._foreground_s)
            return await self._moved(call, request, result) if isinstance(result, StillRunning) else result
        if task.end is not None:
            good = task.end.status is TaskStatus.COMPLETED
            return ToolOutcome("success" if good else "error", words.at_its_end(task, task.end))
        self._watch(task)
        return ToolOutcome("success", words.started(task))

    def running(self, conversation: ConversationKey) -> tuple[JsonObject, ...]:
        mine = (one.task for one in self._watched.values() if one.task.conversation == conversation)
        return tuple(map(words.shown_process, sorted(mine, key=lambda task: -task.number)))

    def work_in(self, box: BoxKey) -> tuple[WorkInBox, ...]:
        """The commands that run in a box without being waited for; for the audit log."""
        calls = [one.task.call for one in self._watched.values() if one.task.background.box == box]
        return tuple(WorkInBox(call.conversation, None, call.run_id, (call.tool_call_id,)) for call in calls)

    # -- from a call to a task --

    async def _begin(self, call: CallKey, request: ToolRequest) -> ToolOutcome:
        task = await self._record(call, request)
        try:
            outcome = await self._shell.begin(request)
        except EffectUnknown:
            await self._end_untold(task, self._lost())
            raise
        except asyncio.CancelledError:
            # The box ended it, or it never began: whoever watches is told which.
            self._watch(task)
            raise
        if outcome is None:
            self._watch(task)
            return ToolOutcome("success", words.started(task))
        good = outcome.status == "success"
        status = TaskStatus.COMPLETED if good else TaskStatus.FAILED
        await self._end_untold(task, TaskEnd(status, 0 if good else None, outcome.text, None, self._clock.wall()))
        return outcome

    async def _moved(self, call: CallKey, request: ToolRequest, still: StillRunning) -> ToolOutcome:
        task = await self.left_running(call, request)
        return ToolOutcome("success", words.moved(task, self._foreground_s, still.text))

    async def left_running(self, call: CallKey, request: ToolRequest) -> Task:
        """A command that was waited for long enough becomes a task."""

        async def keep() -> Task:
            task = await self._record(call, request)
            self._watch(task)
            return task

        # It runs already: an abort that comes now must not leave it without a record.
        return await finish_regardless(keep())

    async def _record(self, call: CallKey, request: ToolRequest) -> Task:
        background = BackgroundCall(request.box, request.call_key)
        said = request.arguments
        command, description = str(said.get("command") or said.get("cmd") or ""), str(said.get("description") or "")
        now = self._clock.wall()
        return await self._durably(
            lambda connection: task_rows.begin(connection, call, background, command, description, now)
        )

    async def _durably(self, change: Callable[[sqlite3.Connection], T]) -> T:
        """Commit what must not be lost; while the disk is full it waits. Raises: StoreError."""
        return await until_stored(
            lambda: self._database.write(change),
            lambda _: self._clock.sleep(STORE_RETRY_S),
            lambda: self._closed,
        )

    # -- from its start to its end --

    def _watch(self, task: Task) -> None:
        if self._closed or task.number in self._watched:
            return
        watched = self._watched[task.number] = _Watched(task)
        watched.watching = asyncio.create_task(self._to_its_end(watched))
        self._delivery.tasks_changed(task.conversation)

    async def _to_its_end(self, watched: _Watched) -> None:
        task = watched.task
        try:
            end = await self._shell.watch(task.background)
            if self._closed:
                # Boxes are being let go of: that one is not known any more means nothing now.
                return
            await self._finish(task, self._lost() if end is None else self._end_of(end))
        except Exception:
            # The record stays as it was, and the next daemon looks again.
            logger.exception("the end of background task %s could not be recorded", task.number)
        finally:
            self._watched.pop(task.number, None)
            watched.ended.set()
        self._delivery.tasks_changed(task.conversation)
        self._delivery.wake()

    def _end_of(self, end: BackgroundEnd) -> TaskEnd:
        return TaskEnd(
            words.status_of(end), end.exit_code, words.text_of_end(end), end.overflow_path, self._clock.wall()
        )

    def _lost(self) -> TaskEnd:
        return TaskEnd(TaskStatus.LOST, None, "", None, self._clock.wall())

    async def _finish(self, task: Task, end: TaskEnd) -> None:
        with contextlib.suppress(StateConflict):
            await self._durably(lambda connection: task_rows.finish(connection, task.number, end))

    async def _end_untold(self, task: Task, end: TaskEnd) -> None:
        """Its call's own result tells of it."""

        def write(connection: sqlite3.Connection) -> None:
            task_rows.finish(connection, task.number, end)
            task_rows.close(connection, task.number, end.ended_at)

        await finish_regardless(self._durably(write))

    # -- the agent looks after them --

    async def _look_after(self, call: CallKey, request: ToolRequest) -> ToolOutcome:
        try:
            match request.tool_name:
                case name if name == OUTPUT_TOOL:
                    return await self._output(call, bind_output(request.arguments))
                case name if name == STOP_TOOL:
                    return await self._stop(call, bind_stop(request.arguments))
                case other:
                    return ToolOutcome("error", f"There is no tool {other!r}.", refused=True)
        except BadArguments as error:
            return ToolOutcome("error", str(error), refused=True)

    async def _output(self, call: CallKey, wish: OutputWish) -> ToolOutcome:
        task = await self.own(call, wish.task_number)
        if task is None:
            return ToolOutcome("error", words.no_such_task(wish.task_number), refused=True)
        task = await self.ended_within(task, wish.wait_s)
        part = await self._shell.read(task.background, wish.offset)
        if part is not None:
            return ToolOutcome("success", words.so_far(task, part))
        return ToolOutcome("success", words.state(task) if task.end is None else words.at_its_end(task, task.end))

    async def _stop(self, call: CallKey, number: int) -> ToolOutcome:
        task = await self.own(call, number)
        if task is None:
            return ToolOutcome("error", words.no_such_task(number), refused=True)
        if task.end is None:
            await self._shell.stop(task.background)
            task = await self.ended_within(task, STOP_WITHIN_S)
        return ToolOutcome("error" if task.end is None else "success", words.state(task))

    async def stop(self, conversation: ConversationKey, number: int) -> Task | None:
        """End a running task of a conversation, for a person; as it stands after that. None = none such runs."""
        watched = self._watched.get(TaskNumber(number))
        if watched is None or watched.task.conversation != conversation:
            return None
        await self._shell.stop(watched.task.background)
        return await self.ended_within(watched.task, STOP_WITHIN_S)

    async def own(self, call: CallKey, number: int) -> Task | None:
        """A task of the same agent: its conversations share their boxes."""
        task = await self._database.read(partial(task_rows.get, number=number))
        return task if task is not None and task.conversation.agent_id == call.conversation.agent_id else None

    async def ended_within(self, task: Task, limit_s: float) -> Task:
        """The task as it is once it has ended, or when the time is over."""
        watched = self._watched.get(task.number)
        if watched is not None and limit_s > 0:
            await set_within(watched.ended, limit_s, self._clock)
        return await self._database.read(partial(task_rows.get, number=task.number)) or task
