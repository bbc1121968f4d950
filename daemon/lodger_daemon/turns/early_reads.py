"""Calls that only read, begun before their step is written down: with it their results go to disk in one commit."""

import asyncio
from dataclasses import dataclass
from typing import Final

from lodger_daemon.turns.call_work import CallStart, execute
from lodger_daemon.turns.core.calls import Batch, Call
from lodger_daemon.turns.desk import Desk, TurnWork
from lodger_daemon.turns.judge_work import tool_request
from lodger_tools.toolbox_contract import ToolOutcome

READ_LIMIT_S: Final = 0.03
"""How long a step waits for what its calls read. What takes longer gets a commit of its own."""


@dataclass(frozen=True, slots=True)
class EndedRead:
    call: Call
    outcome: ToolOutcome


async def ended_reads(desk: Desk, work: TurnWork, batch: Batch, starts: tuple[CallStart, ...]) -> tuple[EndedRead, ...]:
    """Begin the calls of a step that only reads and wait for a moment.

    They may run before the disk knows of them, since nothing is changed by it: after a crash the model is asked again.
    A batch ends as a whole here; otherwise the result is empty, and what runs is in `work.reading` for whoever runs
    the calls. A call that fails in an unforeseen way is left to them too.

    Args:
        starts: the calls that the rules allow and that wait for nobody.
    """
    if len(starts) != len(batch.calls) or not _only_reads(work, batch):
        return ()
    for call in batch.calls:
        outcome: asyncio.Future[ToolOutcome] = asyncio.get_running_loop().create_future()
        work.reading[call.tool_call_id] = outcome
        desk.spawn(work.lease, _read(desk, work, batch, call, outcome))
    outcomes = [work.reading[call.tool_call_id] for call in batch.calls]
    _, running = await asyncio.wait(outcomes, timeout=READ_LIMIT_S)
    if running or any(outcome.cancelled() or outcome.exception() is not None for outcome in outcomes):
        return ()
    work.reading.clear()
    return tuple(EndedRead(call, outcome.result()) for call, outcome in zip(batch.calls, outcomes, strict=True))


def _only_reads(work: TurnWork, batch: Batch) -> bool:
    tools = work.step.built.tools if work.step is not None else {}
    return all(call.tool_name in tools and tools[call.tool_name].only_reads for call in batch.calls)


async def _read(desk: Desk, work: TurnWork, batch: Batch, call: Call, ended: "asyncio.Future[ToolOutcome]") -> None:
    assert call.arguments is not None
    request = tool_request(desk, work, batch.run_id, call.tool_call_id, call.tool_name, call.arguments)
    try:
        outcome = await execute(desk, work, batch.run_id, call, request)
    except Exception as error:  # noqa: BLE001 - raised for whoever runs the call
        ended.set_exception(error)
        # Nobody may run it any more.
        ended.exception()
    except BaseException:
        ended.cancel()
        raise
    else:
        if not ended.done():
            ended.set_result(outcome)
