"""Before a model step: take what waits, see that it may be paid for, build the request."""

import asyncio
from typing import Final

from lodger_daemon.inbox.core.items import InboxItem, TurnSettings
from lodger_daemon.inbox.core.rules import Moment, next_batch
from lodger_daemon.turns import records
from lodger_daemon.turns.core import actions as do
from lodger_daemon.turns.core import machine_events as told
from lodger_daemon.turns.core.events import (
    DeviceStateChanged,
    InputEchoed,
    LoopStatus,
    LoopStatusChanged,
    QueueRemoval,
    StatusNote,
)
from lodger_daemon.turns.core.words import REMIND_OF_EMPTY
from lodger_daemon.turns.desk import Desk, TurnWork
from lodger_daemon.turns.services import FRESHEN_LIMIT_S, finish_regardless
from lodger_daemon.turns.spend_work import limit_reached, stop_at
from lodger_daemon.turns.step_work import build
from lodger_daemon.turns.stored_messages import joined_messages

TELL_OF_MEMORY_AFTER_S: Final = 1.0
FETCHING_MEMORY: Final = "The agent's memory is being fetched; the turn begins when it is here."


async def prepare(desk: Desk, action: do.PrepareStep) -> None:
    work = desk.work_of(action.lease)
    if work.dropping is not None:
        await asyncio.wait({work.dropping})
        desk.work_of(action.lease)
    if action.reserve and not await _reserve(desk, work, action.first):
        desk.feed(told.NothingWaits(action.lease))
        return
    agent_id = desk.key.agent_id
    if action.first:
        await _memory_ready(desk)
        await desk.services.memory.freshen(agent_id, FRESHEN_LIMIT_S)
    reminder = f'<reminder about="answer">\n{REMIND_OF_EMPTY}\n</reminder>' if action.remind_of_empty else None
    limit = await limit_reached(desk, work)
    if limit is not None:
        await stop_at(desk, work, action, limit)
        return
    too_large = await build(desk, work, reminder)
    if too_large is not None:
        desk.feed(told.TooLarge(action.lease, too_large))
        return
    step = work.step
    assert step is not None
    settings = work.settings
    desk.feed(
        told.Prepared(
            action.lease, step.run_id, settings.can_answer_questions, settings.ask_together, settings.max_steps
        )
    )


async def _memory_ready(desk: Desk) -> None:
    """Only an agent's first clone takes long enough to be told of."""
    ready = asyncio.ensure_future(desk.memory_ready(desk.key.agent_id))
    try:
        done, _ = await asyncio.wait({ready}, timeout=TELL_OF_MEMORY_AFTER_S)
        if not done:
            desk.publish(StatusNote(FETCHING_MEMORY, "info"))
        await ready
    finally:
        ready.cancel()


async def _reserve(desk: Desk, work: TurnWork, first: bool) -> bool:
    """Take what waits. False when a turn was begun for something that is gone."""
    if first and work.reserved:
        return True
    moment = Moment.TURN_START if first else Moment.TOOL_BOUNDARY
    running = None if first else work.settings
    batch: tuple[InboxItem, ...] = ()
    if next_batch(desk.waiting(), moment, running):
        batch = await finish_regardless(_take_batch(desk, work, moment, running))
        desk.work_of(work.lease)
    if batch:
        _publish_taken(desk, work, batch, first)
    elif not first:
        _publish_sending(desk, work)
    return bool(batch) or not first


async def _take_batch(
    desk: Desk, work: TurnWork, moment: Moment, running: TurnSettings | None
) -> tuple[InboxItem, ...]:
    first = running is None
    begin = records.TurnBegin(work.turn_id, work.place.as_cause("queue")) if first else None
    key, now = desk.key, desk.services.clock.wall()
    batch = await desk.durably(
        lambda connection: records.reserve(connection, key, moment, running, work.turn_id, begin, now)
    )
    if batch:
        work.reserved = True
        desk.take_input(work, batch, first)
    return batch


def _publish_taken(desk: Desk, work: TurnWork, batch: tuple[InboxItem, ...], first: bool) -> None:
    """PROTOCOL.md 6.3, 6.4: the echo, a snapshot at a turn's start, the status, then what was removed."""
    message = work.pending
    assert message is not None
    said = message.content.get("content")
    desk.publish(InputEchoed(message.message_id, batch[0].client_message_id, said, joined_messages(message)))
    if first:
        work.queued = True
        desk.publish_queue()
        desk.publish(LoopStatusChanged(LoopStatus.WAITING_ON_INPUT))
    _publish_sending(desk, work)
    if first:
        desk.publish(DeviceStateChanged())
    desk.publish_queue(tuple(QueueRemoval(item.client_message_id, "dequeued") for item in batch))


def _publish_sending(desk: Desk, work: TurnWork) -> None:
    earlier = work.step.run_id if work.step is not None else None
    desk.publish(LoopStatusChanged(LoopStatus.SENDING_API_REQUEST, earlier))
