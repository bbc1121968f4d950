"""Background tasks as the other rooms see them: commands that outlive the call that started them.

A task is on record before its command starts or is left to run. Its end is on record before anybody is told, and the
notification is derived from that record until it has reached the conversation.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import NewType, Protocol

from lodger_daemon.clock import WallTime
from lodger_daemon.identity import CallKey, ConversationKey
from lodger_tools.json_value import JsonObject
from lodger_tools.toolbox_contract import BackgroundCall, ToolOutcome, ToolRequest

TaskNumber = NewType("TaskNumber", int)
"""1, 2, 3 … on one machine, never given twice."""


class TaskStatus(StrEnum):
    RUNNING = "running"
    COMPLETED = "completed"
    """With exit code 0."""
    FAILED = "failed"
    STOPPED = "stopped"
    """Because somebody wanted it to."""
    LOST = "lost"
    """Its box has gone: whether it was finished nobody knows."""


@dataclass(frozen=True, slots=True)
class TaskEnd:
    status: TaskStatus
    exit_code: int | None
    text: str
    """The last of its output, redacted."""
    overflow_path: str | None
    ended_at: WallTime


@dataclass(frozen=True, slots=True)
class Task:
    number: TaskNumber
    call: CallKey
    background: BackgroundCall
    command: str
    description: str
    started_at: WallTime
    end: TaskEnd | None
    notices: int
    """How often a notification of its end was put in line: more than once only when one was dropped to make room."""

    @property
    def conversation(self) -> ConversationKey:
        return self.call.conversation

    @property
    def status(self) -> TaskStatus:
        return TaskStatus.RUNNING if self.end is None else self.end.status


class TaskDesk(Protocol):
    """What turns and clients ask of background tasks; event loop only."""

    def serves(self, request: ToolRequest) -> bool:
        """Whether a call is to be run through here and not by the toolbox alone."""
        ...

    async def run(
        self, call: CallKey, request: ToolRequest, on_output: Callable[[str], None] | None = None
    ) -> ToolOutcome:
        """Run a call; a command that takes long becomes a task and its id is the result. Raises: EffectUnknown."""
        ...

    async def collect(self, call: CallKey, request: ToolRequest) -> ToolOutcome | None:
        """After a restart: the outcome of a call an earlier daemon started; None when nobody knows it."""
        ...

    def running(self, conversation: ConversationKey) -> tuple[JsonObject, ...]:
        """Those of a conversation, as the device status shows them, the newest first."""
        ...
