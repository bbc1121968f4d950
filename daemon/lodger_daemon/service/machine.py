"""What clients are told of this machine: implements `DeviceFacts`."""

from lodger_daemon.identity import AgentId
from lodger_daemon.service.persons_rules import PersonsRules
from lodger_daemon.version import VERSION


class Machine:
    """Facts that hold as long as the daemon runs, and the reload of the rules."""

    def __init__(self, name: str, workspace: str, memory_inside: str, rules: PersonsRules) -> None:
        self._name = name
        self._workspace = workspace
        self._memory_inside = memory_inside
        self._rules = rules

    @property
    def connection_name(self) -> str:
        return self._name

    @property
    def version(self) -> str:
        return VERSION

    @property
    def boot_working_directory(self) -> str:
        return self._workspace

    def memory_directory(self, agent_id: AgentId) -> str | None:
        """As the agent's boxes see it; the daemon itself never opens it."""
        del agent_id
        return self._memory_inside

    async def reload(self) -> str:
        """Read the permission rules again. Raises: ValueError saying what is wrong; then the old ones hold."""
        count = await self._rules.reload()
        return f"{count} permission rules are in force. Other settings are read when the daemon starts."
