"""What the turn machine, clients and the command line may ask of an agent's memory (ARCHITECTURE.md section 6)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from lodger_daemon.clock import WallTime
from lodger_daemon.identity import AgentId
from lodger_tools.box.contract import BoxKey
from lodger_tools.validator.tree import Layout


class SyncOutcome(StrEnum):
    """ARCHITECTURE.md section 6. None blocks the person, loses a commit or leaves a half-finished state."""

    SKIPPED = "skipped"
    CLEAN = "clean"
    PUSHED = "pushed"
    DIRTY = "dirty"
    CONFLICT = "conflict"
    INVALID = "invalid"
    BUSY = "busy"
    IN_THE_WAY = "in_the_way"
    PUSH_FAILED = "push_failed"


@dataclass(frozen=True, slots=True)
class SyncStatus:
    outcome: SyncOutcome
    head: str | None
    """Published main."""
    ahead: int
    """Published commits the remote is not known to have."""
    at: WallTime | None
    detail: str = ""
    since: WallTime | None = None
    """When the first of the syncs that have all ended like this one did."""


@dataclass(frozen=True, slots=True)
class CompiledMemory:
    """The memory part of a system prompt, from published main; byte-stable for one standing."""

    standing: str | None
    text: str
    layout: Layout = Layout.V2


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What became of commits the agent made. `text` joins the result of the tool call that moved HEAD; it is empty
    when nothing moved."""

    moved: bool
    head: str | None
    text: str = ""
    standing: str | None = None
    """As `AgentMemory.standing`, afterwards."""


@dataclass(frozen=True, slots=True)
class AgentCard:
    """`agent.toml`: what travels with a memory repository."""

    name: str
    description: str = ""
    model: str | None = None
    toolset: str | None = None


class AgentMemory(Protocol):
    async def prepare(
        self, agent_id: AgentId, card: AgentCard | None, progress: Callable[[str], None] | None = None
    ) -> AgentCard:
        """Make sure both repositories exist: cloned from the remote when it has this agent, else made new with
        `card`. Idempotent; the only call that may delay a turn. Returns the card that now holds.

        Raises: MemoryUnavailable when neither a clone nor a new repository can be had.
        """
        ...

    def checkout_path(self, agent_id: AgentId) -> str:
        """The checkout on the host, to be bound into the agent's boxes. Never opened outside one."""
        ...

    async def compiled(self, agent_id: AgentId) -> CompiledMemory: ...

    def standing(self, agent_id: AgentId) -> str | None:
        """Names what a prompt would be made of now: the published head, and that of each memory the agent shares. Only
        to be kept and compared; None while there is nothing."""
        ...

    async def changed_since(self, agent_id: AgentId, standing: str | None) -> tuple[str | None, str]:
        """The standing now, and a short summary of what changed since `standing` for a `memory_update` part
        (empty when nothing did)."""
        ...

    async def import_commits(self, agent_id: AgentId, box: BoxKey, told_head: str = "") -> ImportReport:
        """Publish what the agent committed, after validation. Cheap (0.1 ms) when main did not move.

        Args:
            told_head: what the box said of the checkout's main as the call ended; empty when it said nothing, then it
                is asked.
        """
        ...

    async def follow_card(self, agent_id: AgentId, changes: Mapping[str, str]) -> None:
        """Write what the person changed of the agent's card (name, description, model) into `agent.toml`; the rest of
        it stays. Durable when it returns. Nothing happens where there is no memory or no valid file to write into.

        Raises: MemoryFailure.
        """
        ...

    def turn_ended(self, agent_id: AgentId, box: BoxKey | None) -> None:
        """Start a sync beside the turn; returns at once. Never two at a time for one agent."""
        ...

    def head_announced(self, agent_id: AgentId, head: str) -> None:
        """The hub has another head than the one last seen."""
        ...

    async def freshen(self, agent_id: AgentId, limit_s: float = 0.3) -> None:
        """Fetch when the hub announced another head; gives up at the limit, never raises for a remote's fault."""
        ...

    def status(self, agent_id: AgentId) -> SyncStatus: ...

    def reminders(self, agent_id: AgentId) -> tuple[str, ...]:
        """One per distinct state that needs the agent: a conflict, invalid commits, a failed sync, core files that
        take much of each prompt."""
        ...

    async def settled(self, agent_id: AgentId, limit_s: float) -> SyncStatus:
        """Wait until no sync of this agent runs, at most `limit_s`."""
        ...

    async def known_agents(self) -> tuple[AgentId, ...]:
        """Agents whose memory can be had: those of the configured remote, oldest first, if it answers; then those whose
        memory is on this machine."""
        ...
