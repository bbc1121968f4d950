"""What a client is shown when it starts or syncs a conversation (PROTOCOL.md 4.1 and 6.5)."""

from typing import Final

from lodger_daemon.clients.connection import ClientConnection
from lodger_daemon.clients.core.rendering import control_request, loop_status, queue_changed, resync, subagents
from lodger_daemon.identity import ConversationKey
from lodger_daemon.turns.core.events import (
    DeviceStateChanged,
    LoopStatusChanged,
    NumberedEvent,
    QuestionAsked,
    QueueChanged,
)

PAGE_EVENTS: Final = 256
"""Events per page of a replay: half of what may wait for one client."""


async def show_state(
    connection: ClientConnection, key: ConversationKey, *, force_device: bool, after_event: int | None
) -> int:
    """Show what was missed (if the client can resume) and what is true now; returns the last event's number.

    A client whose cursor is not kept any more is told so first, and then shown what is.

    Events that come meanwhile follow, each once.
    """
    async with connection.holding(key) as held:
        seen = None
        if after_event is not None and connection.capabilities.resume:
            wanted = max(after_event, 0)
            point = await connection.services.conversations.resume_point(key, wanted)
            if point != wanted:
                connection.show(resync(key, point))
            seen = await _replay(connection, key, point)
        snapshot = await connection.services.conversations.snapshot(key)
        last = snapshot.last_event_number
        news = [event for event in held if seen is None or event.number > seen]
        for event in news:
            # What happened before the snapshot was taken is told before it.
            if event.number <= last and not _is_state(event):
                connection.replay(event)
        held[:] = [event for event in news if event.number > last]
        for question in snapshot.questions:
            connection.show(control_request(key, question))
        connection.show_device(key, force_device, snapshot)
        connection.show(loop_status(key, snapshot.loop, last))
        connection.show(queue_changed(key, QueueChanged(snapshot.queue)))
        connection.show(subagents(key))
        return last


async def _replay(connection: ClientConnection, key: ConversationKey, after_event: int) -> int:
    seen = after_event
    while page := await connection.services.conversations.events_after(key, seen, PAGE_EVENTS):
        await connection.room()
        for numbered in page:
            if not _is_state(numbered):
                connection.replay(numbered)
        seen = page[-1].number
        if len(page) < PAGE_EVENTS:
            break
    return seen


def _is_state(numbered: NumberedEvent) -> bool:
    """Whether the snapshot holds what this event tells: shown again, an older state would follow a newer one."""
    match numbered.event:
        case QueueChanged(removed=removed):
            return not removed
        case LoopStatusChanged() | DeviceStateChanged() | QuestionAsked():
            return True
        case _:
            return False
