"""What turns are given to work with, and what this machine has decided about them."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from lodger_daemon.clock import Clock
from lodger_daemon.identity import AgentId
from lodger_daemon.memory.contract import AgentMemory
from lodger_daemon.models.contract import ModelGateway
from lodger_daemon.network.contract import AllowedHosts
from lodger_daemon.notifications.contract import TaskDesk
from lodger_daemon.questions.questions import QuestionBook
from lodger_daemon.randomness import Rng
from lodger_daemon.spend.contract import SpendBook
from lodger_daemon.store.database import Database
from lodger_daemon.turns.contract import ExternalTools, PlaceFacts
from lodger_daemon.turns.core.states import MAX_STEPS
from lodger_daemon.turns.judging import Judge
from lodger_tools.permissions.core.modes import Mode
from lodger_tools.toolbox_contract import Toolbox

T = TypeVar("T")

logger = logging.getLogger(__name__)

FRESHEN_LIMIT_S: Final = 0.3
"""ARCHITECTURE.md section 6: a fetch beside admission may cost a turn no more."""


@dataclass(slots=True)
class BootFolder:
    """The folder that clients chose for conversations without one of their own; None = the machine's workspace."""

    chosen: str | None = None
    revision: int = 0
    """Grows with each choice."""


@dataclass(frozen=True, slots=True)
class TurnOptions:
    """Settings of this machine."""

    workspace: str
    """Where an agent works when nobody names a folder."""
    home: str = ""
    """The person's home, which boxes see as a private folder; where `~` leads."""
    machine_name: str = "this machine"
    operating_system: str = "Linux"
    default_mode: Mode = Mode.STANDARD
    ceiling: Mode = Mode.UNRESTRICTED
    max_steps: int = MAX_STEPS
    silence_limit_s: float = 600.0
    """How long a model may say nothing in mid-step; the peer's limit for a whole request."""
    memory_import_limit_s: float = 60.0
    memory_sync_wait_s: float = 120.0
    """How long to wait for the outcome of a sync before it is no longer reported as an event."""
    boot: BootFolder = field(default_factory=BootFolder)

    @property
    def boot_folder(self) -> str:
        """Where a conversation works for which nobody chose a folder."""
        return self.boot.chosen or self.workspace


@dataclass(frozen=True, slots=True)
class TurnServices:
    """The other rooms, by their contracts."""

    database: Database
    questions: QuestionBook
    models: ModelGateway
    toolbox: Toolbox
    memory: AgentMemory
    external: ExternalTools
    judge: Judge
    clock: Clock
    rng: Rng
    memory_directory: Callable[[AgentId], str]
    """The agent's checkout as its box sees it."""
    options: TurnOptions
    places: PlaceFacts | None = None
    """What goes on in folders; None where nobody knows."""
    spend: SpendBook | None = None
    """None = nothing is counted and nothing is limited."""
    hosts: AllowedHosts | None = None
    """None = nobody can allow a host for good."""
    tasks: TaskDesk | None = None
    """None = no command goes on in the background."""
    refusal_of: Callable[[str], str] = lambda _: ""
    """Why nobody can work in a folder, in words for the person; empty when one can. Blocking."""


async def finish_regardless(work: Coroutine[Any, Any, T] | asyncio.Task[T]) -> T:
    """Await `work` to its end even when the waiter is cancelled, also twice; that is passed on then.

    For a commit together with the change of memory that must follow it: half of the two is a lie. What `work` waits
    for must end by itself when the daemon stops.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({task})
        if not task.cancelled() and (fault := task.exception()) is not None:
            logger.warning("work that nobody waited for any more failed: %s", fault)
        raise
