"""What lies in an inbox: one item per accepted submission, from its acceptance to its answer."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, TypeAlias

from lodger_daemon.clock import WallTime
from lodger_daemon.identity import ClientMessageId, ConversationKey, QueueItemId, RunId, TurnId
from lodger_daemon.inbox.core.contents import submission_content
from lodger_daemon.turns.contract import InputMessage, Submission
from lodger_daemon.turns.core.events import QueuedItem

Source: TypeAlias = Literal["user", "task_notification", "cron", "subagent", "system"]
Disposition: TypeAlias = Literal["started", "queued"]


class ItemKind(StrEnum):
    """Values are words of the wire."""

    MESSAGE = "message"
    TASK_NOTIFICATION = "task_notification"
    CRON_PROMPT = "cron_prompt"


class ItemStatus(StrEnum):
    """The steps of an item. `ACCEPTED` and `PARKED` wait; `RESERVED` goes on to `ADMITTED` or back to the head."""

    ACCEPTED = "accepted"
    PARKED = "parked"
    """Waits, but an abort took it out of line until the person goes on."""
    RESERVED = "reserved"
    """Taken by a turn whose model request has not been admitted yet."""
    ADMITTED = "admitted"
    """Part of the transcript; its turn goes on."""
    ANSWERED = "answered"
    """Its turn has ended, well or not."""
    CANCELLED = "cancelled"
    """Removed or dropped before any turn admitted it."""


class CancelCause(StrEnum):
    REMOVED = "removed"
    """By a person."""
    DROPPED = "dropped"
    """To make room for a newer item."""
    REVOKED = "revoked"
    """Its sender is no longer trusted."""


@dataclass(frozen=True, slots=True)
class TurnSettings:
    """What of a submission holds for a whole turn."""

    can_answer_questions: bool = True
    tool_allowlist: tuple[str, ...] | None = None
    ask_together: bool = False
    offer_questions: bool = True
    max_steps: int | None = None
    """Model steps the turn may take; None = the machine's limit, which also caps it."""


@dataclass(frozen=True, slots=True)
class InboxItem:
    conversation: ConversationKey
    item_number: int
    """1, 2, 3 … per conversation: the order of acceptance, and the place in line."""
    client_message_id: ClientMessageId
    """That of the first message; it names the item for ever."""
    kind: ItemKind
    source: Source
    messages: tuple[InputMessage, ...]
    settings: TurnSettings
    delivery: Literal["tool_boundary", "turn_end"]
    connection_group: str
    sender: str
    """The hub's id of the device it came from; empty for all others."""
    disposition: Disposition
    """As first reported to the client; a resent message is told the same."""
    status: ItemStatus
    accepted_at: WallTime
    turn_id: TurnId | None = None
    run_id: RunId | None = None
    outcome: str | None = None
    """The stop reason of its turn, or a `CancelCause`."""

    @property
    def id(self) -> QueueItemId:
        return QueueItemId(f"q-{self.item_number}")

    def as_queued(self) -> QueuedItem:
        """As subscribers see it while it waits."""
        return QueuedItem(
            id=self.id,
            client_message_id=self.client_message_id,
            kind=self.kind.value,
            source=self.source,
            content=submission_content(self.messages),
            enqueued_at=self.accepted_at,
            paused=self.status is ItemStatus.PARKED,
        )


@dataclass(frozen=True, slots=True)
class NewItem:
    """A submission on its way into the inbox; one without a message is refused."""

    submission: Submission
    kind: ItemKind = ItemKind.MESSAGE
    source: Source = "user"


def item_number(item_id: QueueItemId) -> int | None:
    """The number in `q-<n>`; None for anything else."""
    prefix, _, digits = item_id.partition("-")
    # SQLite's integers end at 19 digits.
    return int(digits) if prefix == "q" and digits.isascii() and digits.isdigit() and len(digits) < 19 else None
