"""The routes of mailboxes: leave a message for a machine that may be asleep, see what became of it, take it back."""

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, assert_never

from starlette.requests import Request
from starlette.responses import Response

from lodger_hub.access.gate import caller_of
from lodger_hub.api.bodies import answer, read_body
from lodger_hub.errors import RequestRefused
from lodger_hub.mailbox.core.letters import NoLetter, read_letter
from lodger_hub.relay.switchboard import Switchboard
from lodger_hub.store.contract import (
    HubStore,
    Mail,
    MailboxFull,
    MailDraft,
    MailKept,
    MailLimits,
    SenderGone,
)

LETTER_BYTES: Final = 8 * 1024 * 1024
"""Some text and a picture from a phone; larger things are sent while the machine is awake."""


@dataclass(frozen=True, slots=True)
class MailboxRoutes:
    """The handlers. The gate has admitted the caller before any of them runs."""

    store: HubStore
    switchboard: Switchboard
    limits: MailLimits = field(default_factory=MailLimits)
    wall: Callable[[], float] = time.time

    async def post(self, request: Request) -> Response:
        machine_id = await self._machine(request)
        text = (await read_body(request, LETTER_BYTES)).decode("utf-8", "replace")
        request_id = f"mail-{uuid.uuid4()}"
        letter = read_letter(text, request_id)
        if isinstance(letter, NoLetter):
            raise RequestRefused(400, "invalid_message", letter.reason)
        draft = MailDraft(
            machine_id,
            caller_of(request).device_id,
            letter.client_message_id,
            request_id,
            letter.frame,
            int(self.wall() * 1000),
        )
        posted = await self.store.post_mail(draft, self.limits)
        match posted:
            case MailKept(mail):
                connected = self.switchboard.tell_of_mail(machine_id)
                return answer({**_shown(mail), "connected": connected}, 202)
            case MailboxFull(reason):
                raise RequestRefused(409, "mailbox_full", reason)
            case SenderGone():
                raise RequestRefused(401, "unauthenticated", "this device has been revoked")
            case _:
                assert_never(posted)

    async def sent(self, request: Request) -> Response:
        """What the caller's device left there, oldest first; settled messages are shown for a week."""
        machine_id = await self._machine(request)
        await self.store.age_mail(int(self.wall() * 1000), self.limits)
        mails = await self.store.sent_mail(machine_id, caller_of(request).device_id)
        return answer({"messages": [_shown(mail) for mail in mails]})

    async def take_back(self, request: Request) -> Response:
        """A message that is just being handed over may still arrive."""
        message_id = request.path_params["client_message_id"]
        machine_id = await self._machine(request)
        if not await self.store.take_mail_back(machine_id, caller_of(request).device_id, message_id):
            raise RequestRefused(404, "not_waiting", "no message of yours with that id waits for this machine")
        return answer({"taken_back": True})

    async def _machine(self, request: Request) -> str:
        environment = await self.store.by_device(request.path_params["device_id"])
        if environment is None:
            raise RequestRefused(404, "unknown_machine", "no machine has registered under that device id")
        return environment.device_id


def _shown(mail: Mail) -> dict[str, object]:
    return {
        "client_message_id": mail.client_message_id,
        "state": mail.state.value,
        "posted_at": mail.posted_at_ms,
        "settled_at": mail.settled_at_ms,
        "reason": mail.reason,
        "size_bytes": mail.size_bytes,
    }
