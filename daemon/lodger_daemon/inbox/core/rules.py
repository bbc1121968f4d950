"""The rules of the queue (BEHAVIOUR.md A13): what a turn takes, and what has room."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from lodger_daemon.inbox.core.contents import joined_parts
from lodger_daemon.inbox.core.items import InboxItem, ItemKind, ItemStatus, TurnSettings
from lodger_tools.json_value import Json

SOFT_LIMIT: Final = 100
"""From here on notifications and scheduled prompts make room (the peer's figure)."""

HARD_LIMIT: Final = 300
"""From here on a message is refused (the peer's figure)."""

REMEMBERED: Final = 4096
"""Of the newest inputs of a conversation a resent one is known, also after a restart (the peer's figure)."""

DROP_ORDER: Final = (ItemKind.TASK_NOTIFICATION, ItemKind.CRON_PROMPT)
"""Who makes room first. A person's message never does: it was acknowledged."""


class Moment(StrEnum):
    """When a batch is taken."""

    TURN_START = "turn_start"
    TOOL_BOUNDARY = "tool_boundary"
    """In mid-turn, after a batch of tools, before its results go to the model."""


@dataclass(frozen=True, slots=True)
class Admit:
    """There is room. `drop` is the kind whose oldest waiting item is dropped for it."""

    drop: ItemKind | None = None


@dataclass(frozen=True, slots=True)
class NoRoom:
    reason: str


Room: TypeAlias = Admit | NoRoom


def room_for(kind: ItemKind, waiting: Mapping[ItemKind, int]) -> Room:
    """Whether an item of this kind may join those that wait.

    The first in the drop order goes, and among its kind the oldest. A newcomer that stands first itself is refused: its
    sender keeps it (the task table, the schedule).
    """
    total = sum(waiting.values())
    if total < SOFT_LIMIT:
        return Admit()
    for candidate in DROP_ORDER:
        if waiting.get(candidate, 0) > 0:
            return Admit(drop=candidate)
        if kind is candidate:
            return NoRoom(f"{total} messages are waiting already.")
    if total < HARD_LIMIT:
        return Admit()
    return NoRoom(f"{total} messages are waiting already. Wait for some to be answered, or remove some.")


def next_batch(
    items: Iterable[InboxItem], moment: Moment, running: TurnSettings | None = None
) -> tuple[InboxItem, ...]:
    """The items one turn takes together: the longest run at the head that belongs together.

    Args:
        items: those that wait, in their order. Parked ones are passed over.
        running: at a tool boundary, the settings of the turn that runs; messages under other settings wait for its end,
            so that a message with a narrower tool list is never answered under a wider one.
    """
    batch: list[InboxItem] = []
    for item in items:
        if item.status is not ItemStatus.ACCEPTED or _not_now(item, moment):
            continue
        if not _belongs(item, batch, running):
            break
        batch.append(item)
    return tuple(batch)


def batch_settings(batch: Sequence[InboxItem]) -> TurnSettings:
    """What holds for the turn: the settings of its messages (all alike), else of its first item."""
    for item in batch:
        if item.kind is ItemKind.MESSAGE:
            return item.settings
    return batch[0].settings if batch else TurnSettings()


def batch_content(batch: Sequence[InboxItem]) -> list[Json]:
    """The parts of the one user message that the batch becomes."""
    return joined_parts(message.content for item in batch for message in item.messages)


def _not_now(item: InboxItem, moment: Moment) -> bool:
    return moment is Moment.TOOL_BOUNDARY and item.delivery == "turn_end"


def _belongs(item: InboxItem, batch: Sequence[InboxItem], running: TurnSettings | None) -> bool:
    if item.kind is not ItemKind.MESSAGE:
        return True
    if running is not None and item.settings != running:
        return False
    for other in batch:
        if other.kind is ItemKind.MESSAGE:
            return other.connection_group == item.connection_group and other.settings == item.settings
    return True
