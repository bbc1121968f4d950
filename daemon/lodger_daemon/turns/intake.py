"""What people send while a conversation rests or works: accepted, removed, interrupted, let go on."""

import asyncio
from collections.abc import Sequence
from typing import Literal

from lodger_daemon.backends.core import images
from lodger_daemon.identity import ConversationKey, QueueItemId, RunId, TurnId
from lodger_daemon.inbox.core.items import CancelCause, ItemKind, NewItem, item_number
from lodger_daemon.store import inbox_rows
from lodger_daemon.store.errors import StoreError
from lodger_daemon.turns import records, recovery
from lodger_daemon.turns.actor import ConversationActor
from lodger_daemon.turns.contract import Accepted, ConversationError, Receipt, Refused, SendersDropped
from lodger_daemon.turns.core.events import QueueRemoval
from lodger_daemon.turns.core.states import Active
from lodger_daemon.turns.registry import Registry
from lodger_daemon.turns.services import TurnServices, finish_regardless


class Intake:
    """Event loop only. What it reports as done is on disk."""

    def __init__(self, services: TurnServices, registry: Registry) -> None:
        self._services = services
        self._database = services.database
        self._registry = registry
        self._dropped: set[str] = set()
        """Devices that were revoked while this daemon runs."""

    async def submit(self, key: ConversationKey, item: NewItem) -> Receipt:
        if not item.submission.messages:
            return Refused("An input needs at least one message.")
        fault = images.fault_of([message.content for message in item.submission.messages])
        if fault is not None:
            return Refused(fault)
        try:
            actor = await self._registry.actor(key)
            if actor.left_open:
                actor = await self._registry.take_up_again(actor)
        except (ConversationError, StoreError) as error:
            return Refused(str(error))
        # No pause from here to the write: it is in line before the one that drops what waits, or it is not made.
        if item.submission.sender in self._dropped:
            return Refused("The device this came from has been revoked.")
        turn_id = actor.claim() if item.kind is ItemKind.MESSAGE else None
        begin = None
        if turn_id is not None:
            place = actor.desk.live.place(self._services.options)
            begin = records.TurnBegin(turn_id, place.as_cause("message"))
        disposition: Literal["started", "queued"] = "started" if begin is not None else "queued"
        now = self._services.clock.wall()
        try:
            result = await self._database.write(
                lambda connection: records.accept(connection, key, item, disposition, begin, now)
            )
        except StoreError as error:
            if turn_id is not None:
                actor.give_back_claim()
            return Refused(str(error))
        except BaseException:
            # The write may have happened although nobody waited for it; then its row is found as reserved or waiting.
            actor.own(self._settle_claim(actor, turn_id) if turn_id is not None else self._settle_queue(actor))
            raise
        return self._receipt(actor, turn_id, disposition, result)

    async def abort(self, key: ConversationKey, run_id: RunId | None) -> bool:
        """Interrupt the turn and park the messages that wait; a new message or `resume` lets them go on.

        A command, such as a compaction, is stopped too; it parks nothing.
        """
        actor = await self._registry.actor(key)
        state = actor.state
        if run_id is not None and isinstance(state, Active) and state.turn.run_id not in (None, run_id):
            return False
        kept = actor.abort()
        if kept is None:
            return actor.stop_command()
        # Acknowledged only once a crash can no longer undo it.
        await finish_regardless(kept)
        return True

    async def remove(self, key: ConversationKey, item_id: QueueItemId) -> bool:
        number = item_number(item_id)
        if number is None:
            return False
        now = self._services.clock.wall()

        async def remove() -> bool:
            removed = await self._database.write(
                lambda connection: inbox_rows.cancel(connection, key, number, CancelCause.REMOVED, now)
            )
            if removed is None:
                return False
            actor = await self._registry.actor(key)
            actor.desk.publish_queue((QueueRemoval(removed.client_message_id, "cancelled"),))
            return True

        return await finish_regardless(remove())

    async def drop_senders(self, device_ids: Sequence[str]) -> SendersDropped:
        """Remove all that waits of these devices, and stop the turns they have begun or steered."""
        # The empty name stands for whoever is on no device.
        devices = [device_id for device_id in device_ids if device_id]
        self._dropped.update(devices)
        now = self._services.clock.wall()

        async def drop() -> SendersDropped:
            removed, begun = await self._database.write(
                lambda connection: (
                    inbox_rows.cancel_from(connection, devices, now),
                    inbox_rows.begun_from(connection, devices),
                )
            )
            for key in {item.conversation for item in removed}:
                gone = [item for item in removed if item.conversation == key]
                actor = await self._registry.actor(key)
                actor.desk.publish_queue(tuple(QueueRemoval(item.client_message_id, "cancelled") for item in gone))
            stopped = 0
            for key, turn_id in {(item.conversation, item.turn_id) for item in begun}:
                stopped += await self._stop(key, turn_id)
            return SendersDropped(len(removed), stopped)

        return await finish_regardless(drop())

    async def _stop(self, key: ConversationKey, turn_id: TurnId | None) -> bool:
        """Interrupt this turn, if it is still the one that runs."""
        actor = await self._registry.actor(key)
        # One whose message was stored just before the look at the store begins meanwhile.
        await actor.desk.durably(lambda _: None)
        state = actor.state
        if not isinstance(state, Active) or state.turn.turn_id != turn_id:
            return False
        return await self.abort(key, None)

    async def resume(self, key: ConversationKey) -> int:
        async def resume() -> int:
            released = await self._database.write(lambda connection: inbox_rows.resume(connection, key))
            if released:
                actor = await self._registry.actor(key)
                actor.desk.publish_queue()
                actor.pump()
            return released

        return await finish_regardless(resume())

    def _receipt(
        self,
        actor: ConversationActor,
        turn_id: TurnId | None,
        disposition: Literal["started", "queued"],
        result: inbox_rows.AcceptResult,
    ) -> Receipt:
        match result:
            case inbox_rows.ItemRefused(reason):
                if turn_id is not None:
                    actor.give_back_claim()
                return Refused(reason)
            case inbox_rows.ItemDuplicate(known):
                if turn_id is not None:
                    actor.give_back_claim()
                return Accepted(known.disposition, resent=True)
            case inbox_rows.ItemAccepted(stored, dropped):
                loop = asyncio.get_running_loop()
                # The acknowledgement goes out before the first event of the turn; for one that begins now a round of
                # the loop earlier, so that it does not wait for what the turn shows first.
                if turn_id is not None:
                    loop.call_soon(loop.call_soon, actor.begin, turn_id, stored)
                else:
                    removed = tuple(QueueRemoval(item.client_message_id, "cancelled") for item in dropped)
                    actor.expect()
                    loop.call_soon(self._queued, actor, removed)
                return Accepted(disposition)

    async def _settle_claim(self, actor: ConversationActor, turn_id: TurnId) -> None:
        """The client went away while its input was being stored: find out whether it was."""
        items = await actor.desk.durably(lambda connection: recovery.reserved_of(connection, turn_id))
        if items:
            actor.begin(turn_id, items[0])
        else:
            actor.give_back_claim()

    async def _settle_queue(self, actor: ConversationActor) -> None:
        """The same for an input that was to wait: whatever became of it is shown, and moved when nothing runs."""
        await actor.desk.durably(lambda _: None)
        self._queued(actor, ())

    def _queued(self, actor: ConversationActor, removed: tuple[QueueRemoval, ...]) -> None:
        actor.desk.publish_queue(removed)
        actor.pump()
