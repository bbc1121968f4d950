"""After a restart: clients are told of committed results whose events a crash took along.

A commit is told of right after it, and everything told before is stored with it. So only what tells of a conversation's
latest commit can be missing: the calls of its last step, or their results.
"""

from typing import Final, Literal

from lodger_daemon.backends.core.transcript import MessageKind, TranscriptMessage, calls_of, text_of
from lodger_daemon.identity import MessageId, ToolCallId
from lodger_daemon.turns.core.events import ToolCallRequested, ToolEnded, ToolReturned, ToolStarted
from lodger_daemon.turns.desk import Desk

NEWEST_ROWS: Final = 500
"""Stored events that are looked through; a step of a hundred calls has some four for each."""


async def tell_last_step(desk: Desk) -> None:
    """Publish what no stored event says of the last step's calls and results. Before clients are let in."""
    messages = desk.live.transcript.in_context
    start = next((i for i in range(len(messages) - 1, -1, -1) if messages[i].kind is not MessageKind.TOOL), None)
    if start is None or not calls_of(messages[start]) or (run_id := messages[start].run_id) is None:
        return
    told: dict[type, set[ToolCallId]] = {
        kind: set() for kind in (ToolCallRequested, ToolStarted, ToolEnded, ToolReturned)
    }
    for numbered in await desk.log.newest(NEWEST_ROWS):
        match numbered.event:
            case ToolCallRequested() | ToolStarted() | ToolEnded() | ToolReturned() as event if event.run_id == run_id:
                told[type(event)].add(event.tool_call_id)
            case _:
                pass
    calls_id = MessageId(text_of(messages[start].content, "calls_message_id") or messages[start].message_id)
    for call in calls_of(messages[start]):
        if call.tool_call_id not in told[ToolCallRequested]:
            desk.publish(ToolCallRequested(run_id, calls_id, call.tool_call_id, call.name, call.arguments_json))
    for result in messages[start + 1 :]:
        call_id = result.tool_call_id
        if call_id is None or call_id in told[ToolReturned]:
            continue
        if call_id in told[ToolStarted] and call_id not in told[ToolEnded]:
            desk.publish(ToolEnded(run_id, calls_id, call_id, _status(result)))
        desk.publish(ToolReturned(run_id, result.message_id, call_id, _status(result), text_of(result.content, "text")))


def _status(result: TranscriptMessage) -> Literal["success", "error"]:
    return "success" if result.content.get("status") == "success" else "error"
