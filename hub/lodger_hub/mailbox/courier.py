"""Hands what waited for a machine over to it, as one more client of it."""

import asyncio
import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from lodger_hub.errors import StoreFailed
from lodger_hub.mailbox.core.letters import Acknowledgement, read_acknowledgement
from lodger_hub.relay.core.bare import Interest, Runtime, parse, runtime_of
from lodger_hub.relay.links import Ending
from lodger_hub.relay.switchboard import MachineLink, client_header
from lodger_hub.store.contract import HubStore, Mail, MailLimits, MailState

logger = logging.getLogger(__name__)

ATTEMPTS: Final = 3
"""A machine that is awake and says nothing to it so often will not: it says nothing to a message it cannot read."""
REASON_CHARACTERS: Final = 500


class CourierClient:
    """A client of one machine without a socket, for what one device has left."""

    def __init__(self, device_id: str) -> None:
        self.id = f"client-{uuid.uuid4()}"
        self.token_id: str | None = None
        self.device_id = device_id
        self.interest = Interest({("", "")})
        self.header = client_header(self.id)
        self.is_cut = False
        self._waiting: tuple[str, asyncio.Future[Acknowledgement | None]] | None = None

    def expect(self, request_id: str) -> "asyncio.Future[Acknowledgement | None]":
        future: asyncio.Future[Acknowledgement | None] = asyncio.get_running_loop().create_future()
        if self.is_cut:
            future.set_result(None)
        self._waiting = (request_id, future)
        return future

    def deliver(self, frame: str) -> None:
        """Everything but the acknowledgement is for clients that watch."""
        acknowledgement = read_acknowledgement(frame)
        if acknowledgement is None or self._waiting is None:
            return
        request_id, future = self._waiting
        if acknowledgement.request_id == request_id and not future.done():
            future.set_result(acknowledgement)

    def cut(self, _ending: Ending) -> None:
        self.is_cut = True
        if self._waiting is not None and not self._waiting[1].done():
            self._waiting[1].set_result(None)


@dataclass(frozen=True, slots=True)
class Courier:
    """One per hub; `serve` runs beside each machine's socket and is cancelled with it."""

    store: HubStore
    has_device: Callable[[str], bool]
    """Whether a sender may still say anything."""
    limits: MailLimits = field(default_factory=MailLimits)
    wall: Callable[[], float] = time.time

    async def serve(self, link: MachineLink) -> None:
        while True:
            link.mail_posted.clear()
            try:
                left = await self._hand_over_all(link)
            except StoreFailed as error:
                logger.warning("%s", error)
                left = True
            # The last net: what nobody thought of in one letter must not keep all others from this machine.
            except Exception:
                logger.exception("mail of machine %s could not be handed over", link.environment.device_id)
                left = True
            try:
                async with asyncio.timeout(link.limits.mail_again_s if left else None):
                    await link.mail_posted.wait()
            except TimeoutError:
                pass

    async def _hand_over_all(self, link: MachineLink) -> bool:
        """Whether something still waits. In one conversation nothing overtakes what was posted before it."""
        machine_id = link.environment.device_id
        await self.store.age_mail(self._now_ms(), self.limits)
        mail = await self.store.next_mail(machine_id, 0)
        if mail is None:
            return False
        stuck: set[Runtime | None] = set()
        clients: dict[str, CourierClient] = {}
        try:
            while mail is not None:
                runtime = _runtime(mail)
                client = clients.get(mail.sender_id)
                if client is None:
                    client = clients[mail.sender_id] = CourierClient(mail.sender_id)
                    link.admit(client)
                if runtime not in stuck and not await self._hand_over(link, client, mail):
                    stuck.add(runtime)
                if client.is_cut:
                    return True
                mail = await self.store.next_mail(machine_id, mail.seq)
        finally:
            for client in clients.values():
                link.dismiss(client)
        return bool(stuck)

    async def _hand_over(self, link: MachineLink, client: CourierClient, mail: Mail) -> bool:
        """Whether this one no longer waits."""
        acknowledged = client.expect(mail.request_id)
        # No pause between this look and the queue: what a revoked device left behind is not sent.
        if mail.frame is None or not self.has_device(mail.sender_id):
            return True
        heard_before = link.frames_heard
        ending = await link.from_client(client, mail.frame)
        if ending is not None:
            await self._settle(mail, MailState.REFUSED, "the message is too large for the machine's connection")
            return True
        try:
            async with asyncio.timeout(link.limits.acknowledge_s):
                answer = await acknowledged
        except TimeoutError:
            answer = None
        if answer is None:
            asleep = link.frames_heard == heard_before
            if client.is_cut or asleep or await self.store.note_mail_attempt(mail.seq) < ATTEMPTS:
                return False
            await self._settle(mail, MailState.REFUSED, "the machine did not acknowledge it, however often it was sent")
            return True
        reason = None if answer.accepted else (answer.reason or "the machine gave no reason")[:REASON_CHARACTERS]
        await self._settle(mail, MailState.DELIVERED if answer.accepted else MailState.REFUSED, reason)
        return True

    async def _settle(self, mail: Mail, state: MailState, reason: str | None) -> None:
        await self.store.settle_mail(mail.seq, state, reason, self._now_ms())

    def _now_ms(self) -> int:
        return int(self.wall() * 1000)


def _runtime(mail: Mail) -> Runtime | None:
    frame = None if mail.frame is None else parse(mail.frame)
    return None if frame is None else runtime_of(frame)
