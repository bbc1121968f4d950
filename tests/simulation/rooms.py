"""Memory and rules of the simulated machine, behind the contracts of those rooms."""

import asyncio
from collections.abc import Callable

from lodger_daemon.identity import AgentId
from lodger_daemon.memory.contract import AgentCard, CompiledMemory, ImportReport, SyncOutcome, SyncStatus
from lodger_tools.box.contract import BoxKey
from lodger_tools.permissions.core.modes import Mode
from lodger_tools.permissions.core.verdicts import Allowed, CallToJudge, Denied, NeedsPerson, Suggestion, Verdict
from simulation.world import World


class SharedMemory:
    """Published memory and what lies committed in the checkout; outlives daemons."""

    def __init__(self) -> None:
        self.head = 1
        self.unpublished = 0

    def remember(self) -> None:
        self.unpublished += 1

    def elsewhere(self) -> None:
        """Another machine's commit arrives with a sync."""
        self.head += 1

    @property
    def commit(self) -> str:
        return f"commit-{self.head}"


class SimMemory:
    """The `AgentMemory` of one daemon."""

    def __init__(self, world: World, shared: SharedMemory) -> None:
        self._world = world
        self._shared = shared

    async def prepare(
        self, agent_id: AgentId, card: AgentCard | None, progress: Callable[[str], None] | None = None
    ) -> AgentCard:
        await self._pause()
        return card or AgentCard("Lodger")

    def checkout_path(self, agent_id: AgentId) -> str:
        return f"/host/{agent_id}"

    async def compiled(self, agent_id: AgentId) -> CompiledMemory:
        await self._pause()
        commit = self._shared.commit
        return CompiledMemory(commit, f"Memory as of {commit}.")

    def standing(self, agent_id: AgentId) -> str | None:
        return self._shared.commit

    async def changed_since(self, agent_id: AgentId, standing: str | None) -> tuple[str | None, str]:
        await self._pause()
        now = self._shared.commit
        return now, f"Memory went from {standing} to {now}." if now != standing else ""

    async def import_commits(self, agent_id: AgentId, box: BoxKey, told_head: str = "") -> ImportReport:
        await self._pause()
        if not self._shared.unpublished:
            return ImportReport(False, self._shared.commit)
        self._shared.unpublished = 0
        self._shared.head += 1
        now = self._shared.commit
        return ImportReport(True, now, f"Memory is now at {now}.", now)

    def turn_ended(self, agent_id: AgentId, box: BoxKey | None) -> None:
        pass

    def head_announced(self, agent_id: AgentId, head: str) -> None:
        pass

    async def freshen(self, agent_id: AgentId, limit_s: float = 0.3) -> None:
        await self._pause()

    def status(self, agent_id: AgentId) -> SyncStatus:
        return SyncStatus(SyncOutcome.CLEAN, self._shared.commit, 0, None)

    def reminders(self, agent_id: AgentId) -> tuple[str, ...]:
        return ()

    async def settled(self, agent_id: AgentId, limit_s: float) -> SyncStatus:
        await self._pause()
        return self.status(agent_id)

    async def known_agents(self) -> tuple[AgentId, ...]:
        return ()

    async def _pause(self) -> None:
        await asyncio.sleep(self._world.between(0.0001, 0.05))


class SharedRules:
    def __init__(self) -> None:
        self.ask_is_allowed = False


class SimJudge:
    """Commands that begin with `ask` ask, with `deny` are denied; all others are allowed."""

    def __init__(self, world: World, rules: SharedRules) -> None:
        self._world = world
        self._rules = rules

    def judge(self, call: CallToJudge, mode: Mode) -> Verdict:
        command = str(call.arguments.get("command", ""))
        if command.startswith("deny"):
            return Denied("a rule denies it")
        asks = command.startswith("ask") and mode is not Mode.UNRESTRICTED and not self._rules.ask_is_allowed
        if asks or mode is Mode.STRICT:
            return NeedsPerson("leaves the box", suggestions=(Suggestion("always", "Bash(ask:*)", "ask…"),))
        return Allowed("the box contains it")

    def looks_at_paths(self, tool_name: str) -> bool:
        # Where no rule looks at paths, calls that only read begin before their step is written down.
        return tool_name == "Read" and self._world.seed % 2 == 0

    async def save_rule(self, suggestion: Suggestion, workspace: str) -> None:
        await asyncio.sleep(self._world.between(0.0001, 0.05))
        self._rules.ask_is_allowed = True
