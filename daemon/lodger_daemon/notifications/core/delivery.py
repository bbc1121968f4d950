"""What is still to be done about a task that has ended, by what became of its notification. Pure."""

from enum import Enum

from lodger_daemon.identity import ClientMessageId
from lodger_daemon.inbox.core.items import CancelCause, InboxItem, ItemStatus
from lodger_daemon.inbox.core.rules import SOFT_LIMIT
from lodger_daemon.notifications.contract import Task


class Step(Enum):
    SUBMIT = "submit"
    """Put a notification in line."""
    WAIT = "wait"
    """One is in line, or there is no room for it now."""
    CLOSE = "close"
    """It has reached the conversation, or a person took it out of line."""


def notice_id(task: Task, attempt: int) -> ClientMessageId:
    """By it the inbox knows a notification, so that one is never taken twice."""
    return ClientMessageId(f"task-notice-{task.number}-{attempt}")


def next_step(notice: InboxItem | None, waiting: int) -> Step:
    """
    Args:
        notice: the latest notification of the task; None when there is none yet.
        waiting: how much is in line in its conversation.
    """
    if notice is not None:
        match notice.status:
            case ItemStatus.ADMITTED | ItemStatus.ANSWERED:
                return Step.CLOSE
            case ItemStatus.CANCELLED if notice.outcome != CancelCause.DROPPED:
                return Step.CLOSE
            case ItemStatus.CANCELLED:
                pass
            case _:
                return Step.WAIT
    # In a full line a newcomer would only push out another task's notification, which would come back for this one's.
    return Step.SUBMIT if waiting < SOFT_LIMIT else Step.WAIT
