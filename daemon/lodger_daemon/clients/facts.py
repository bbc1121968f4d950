"""What clients are told of this machine and program; implemented where the daemon is put together."""

from typing import Protocol

from lodger_daemon.identity import AgentId


class DeviceFacts(Protocol):
    """Facts that no conversation holds. All but `reload` answer at once."""

    @property
    def connection_name(self) -> str:
        """This machine's name for people."""
        ...

    @property
    def version(self) -> str:
        """Lodger's version."""
        ...

    @property
    def boot_working_directory(self) -> str: ...

    def memory_directory(self, agent_id: AgentId) -> str | None:
        """The agent's checkout on this machine."""
        ...

    async def reload(self) -> str:
        """Read settings and rules again; returns a line for the person. Raises: ValueError saying what is wrong."""
        ...
