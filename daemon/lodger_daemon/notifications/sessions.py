"""Shell sessions: a task whose command takes input, shown piece by piece as it is asked for."""

from collections.abc import Callable
from typing import Protocol

from lodger_daemon.clock import Clock
from lodger_daemon.identity import CallKey
from lodger_daemon.notifications.contract import Task, TaskNumber
from lodger_daemon.notifications.core import words
from lodger_tools.catalogue.arguments import BadArguments
from lodger_tools.catalogue.exec_sessions import EXEC_TOOL, InputWish, bind_exec, bind_input
from lodger_tools.toolbox_contract import BackgroundShell, StillRunning, ToolOutcome, ToolRequest


class SessionTasks(Protocol):
    """What sessions need of tasks."""

    async def left_running(self, call: CallKey, request: ToolRequest) -> Task: ...

    async def own(self, call: CallKey, number: int) -> Task | None: ...

    async def ended_within(self, task: Task, limit_s: float) -> Task: ...


class Sessions:
    """Event loop only. How far each session was shown is forgotten at a restart: then the last of its output is."""

    def __init__(self, tasks: SessionTasks, shell: BackgroundShell, clock: Clock) -> None:
        self._tasks = tasks
        self._shell = shell
        self._clock = clock
        self._shown: dict[TaskNumber, int] = {}

    async def run(
        self, call: CallKey, request: ToolRequest, on_output: Callable[[str], None] | None = None
    ) -> ToolOutcome:
        """Raises: EffectUnknown."""
        try:
            if request.tool_name != EXEC_TOOL:
                return await self._input(call, bind_input(request.arguments))
            wish = bind_exec(request.arguments)
        except BadArguments as error:
            return ToolOutcome("error", str(error), refused=True)
        began = self._clock.mono()
        result = await self._shell.run_a_while(request, on_output, wish.yield_s)
        wall_s = self._clock.mono() - began
        if isinstance(result, ToolOutcome):
            if result.refused:
                return result
            text = words.session_ended(wall_s, result, wish.limit_chars)
            return ToolOutcome(result.status, text, result.overflow_path)
        return await self._goes_on(call, request, result, wall_s, wish.limit_chars)

    async def _goes_on(
        self, call: CallKey, request: ToolRequest, still: StillRunning, wall_s: float, limit_chars: int
    ) -> ToolOutcome:
        task = await self._tasks.left_running(call, request)
        self._shown[task.number] = still.total
        return ToolOutcome("success", words.session_state(task, wall_s, still.text, limit_chars))

    async def _input(self, call: CallKey, wish: InputWish) -> ToolOutcome:
        task = await self._tasks.own(call, wish.session)
        if task is None:
            return ToolOutcome("error", f"There is no session {wish.session} of yours on this machine.", refused=True)
        began = self._clock.mono()
        typed = not wish.text or task.end is None
        if wish.text and typed and not await self._shell.write(task.background, wish.text):
            return ToolOutcome("error", f"Session {wish.session} takes no input now; nothing was typed.", refused=True)
        task = await self._tasks.ended_within(task, wish.yield_s)
        wall_s = self._clock.mono() - began
        part = await self._shell.read(task.background, self._shown.get(task.number))
        if part is None:
            text = "" if task.end is None else task.end.text
        else:
            text, self._shown[task.number] = part.text, part.end
            if part.ended and part.end == part.total:
                self._shown.pop(task.number, None)
        state = words.session_state(task, wall_s, text, wish.limit_chars)
        # What had ended before took no input.
        return ToolOutcome("success" if typed else "error", state)
