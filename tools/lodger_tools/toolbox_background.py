"""Shell commands that outlive the waiting for them: the same path as every call, with another end."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from lodger_tools.box.contract import (
    BackgroundBoxes,
    BoxCall,
    BoxOutcome,
    Operation,
    OutputSink,
    RunCommand,
    StillRuns,
)
from lodger_tools.catalogue.arguments import BadArguments
from lodger_tools.catalogue.binding import bind
from lodger_tools.catalogue.exec_sessions import EXEC_TOOL
from lodger_tools.output.core.background import OVERLAP_BYTES, PART_LIMIT_BYTES, last_lines, shown_part
from lodger_tools.permissions.core.rules import COMMAND_TOOL
from lodger_tools.redaction.core.redactor import Redactor
from lodger_tools.runner.wire import LAST_OUTPUT_BYTES
from lodger_tools.toolbox import LodgerToolbox
from lodger_tools.toolbox_contract import (
    BackgroundCall,
    BackgroundEnd,
    OutputSoFar,
    StillRunning,
    ToolOutcome,
    ToolRequest,
)


class BackgroundToolbox:
    """Implements `BackgroundShell` on boxes."""

    def __init__(self, toolbox: LodgerToolbox, boxes: BackgroundBoxes) -> None:
        self._toolbox = toolbox
        self._boxes = boxes

    def starts_command(self, request: ToolRequest) -> bool:
        return request.tool_name in (COMMAND_TOOL, EXEC_TOOL)

    def wants_background(self, request: ToolRequest) -> bool:
        try:
            operation = bind(request.tool_name, request.arguments)
        except BadArguments:
            return False
        return isinstance(operation, RunCommand) and operation.background

    async def run_a_while(
        self, request: ToolRequest, on_output: Callable[[str], None] | None, foreground_s: float
    ) -> ToolOutcome | StillRunning:
        async def run(call: BoxCall, sink: OutputSink | None) -> BoxOutcome | StillRuns:
            return await self._boxes.run_a_while(request.box, call, sink, foreground_s)

        outcome = await self._toolbox.perform(request, on_output, run, left_running)
        return self._still_running(request, outcome) if isinstance(outcome, StillRuns) else outcome

    async def collect_a_while(self, request: ToolRequest, foreground_s: float) -> ToolOutcome | StillRunning | None:
        try:
            operation = bind(request.tool_name, request.arguments)
        except BadArguments:
            return None
        outcome = await self._boxes.collect_a_while(request.box, request.call_key, foreground_s)
        match outcome:
            case None:
                return None
            case StillRuns():
                return self._still_running(request, outcome)
            case BoxOutcome():
                redactor = self._toolbox.redactor_for(request.box.agent_id)
                return await self._toolbox.result(request, operation, outcome, redactor)

    async def begin(self, request: ToolRequest) -> ToolOutcome | None:
        async def run(call: BoxCall, sink: OutputSink | None) -> BoxOutcome | StillRuns:
            return await self._boxes.begin(request.box, call) or StillRuns(b"")

        outcome = await self._toolbox.perform(request, None, run, left_running)
        return None if isinstance(outcome, StillRuns) else outcome

    async def watch(self, call: BackgroundCall) -> BackgroundEnd | None:
        refused_before = self._toolbox.refused_before(call.box)
        outcome = await self._boxes.watch(call.box, call.call_key)
        if outcome is None:
            return None
        agent_id = call.box.agent_id
        # Up to 256 KiB: longer than the loop may be held.
        text = await asyncio.to_thread(ending, outcome.text.encode(), self._toolbox.redactor_for(agent_id))
        shown = last_lines(text)
        path = None if shown == text else await self._toolbox.keep_whole(agent_id, COMMAND_TOOL, text)
        return BackgroundEnd(
            exit_code=outcome.exit_code,
            text=shown + await self._toolbox.refusals(call.box, refused_before),
            overflow_path=path,
            timed_out=outcome.timed_out,
            cancelled=outcome.cancelled,
            out_of_memory=outcome.out_of_memory,
            leftovers=outcome.leftovers,
        )

    async def read(self, call: BackgroundCall, offset: int | None) -> OutputSoFar | None:
        if offset is None:
            last = await self._boxes.read(call.box, call.call_key, -PART_LIMIT_BYTES, 0)
            if last is None:
                return None
            offset = last.start
        part = await self._boxes.read(call.box, call.call_key, offset, PART_LIMIT_BYTES)
        if part is None:
            return None
        begins = max(0, part.start - OVERLAP_BYTES)
        before = await self._boxes.read(call.box, call.call_key, begins, part.start - begins) if part.start else None
        # Where the middle was not kept, the piece before does not reach up to this one: then it says nothing of it.
        overlap = before.data if before is not None and before.start + len(before.data) == part.start else b""
        end = part.start + len(part.data)
        whole = part.ended and end == part.total
        redactor = self._toolbox.redactor_for(call.box.agent_id)
        text = await asyncio.to_thread(shown_part, overlap, part.data, whole, redactor)
        return OutputSoFar(text, part.start, end, part.total, part.ended)

    async def write(self, call: BackgroundCall, text: str) -> bool | None:
        return await self._boxes.write(call.box, call.call_key, text.encode("utf-8", "replace"))

    async def stop(self, call: BackgroundCall) -> None:
        await self._boxes.cancel(call.box, call.call_key)

    def _still_running(self, request: ToolRequest, outcome: StillRuns) -> StillRunning:
        """Without a wait: whoever is told of a command that goes on must be able to write it down at once."""
        last = outcome.output[-PART_LIMIT_BYTES:]
        before = outcome.output[:-PART_LIMIT_BYTES][-OVERLAP_BYTES:]
        redactor = self._toolbox.redactor_for(request.box.agent_id)
        return StillRunning(shown_part(before, last, ended=False, redactor=redactor), outcome.total)


def left_running(request: ToolRequest) -> Operation:
    """What a call asks for when it may go on in the background: with no limit but its own. Raises: BadArguments."""
    operation = bind(request.tool_name, request.arguments)
    return replace(operation, pinned=request.pinned) if isinstance(operation, RunCommand) else operation


def ending(output: bytes, redactor: Redactor) -> str:
    """The last of an output; where more went before it, without what a secret or a sequence cut there would spoil."""
    cut = OVERLAP_BYTES if len(output) >= LAST_OUTPUT_BYTES else 0
    return shown_part(output[:cut], output[cut:], ended=True, redactor=redactor)
