"""Where memories that agents share are to be had: at the hub, as one of the agents they are attached to."""

from collections.abc import Callable
from dataclasses import dataclass

from lodger_daemon.identity import AgentId
from lodger_daemon.memory.core.shared import Listed, listed_in
from lodger_daemon.memory.remote import MemoryRemote


@dataclass(frozen=True, slots=True)
class SharedRemote:
    """A `Remote` for one shared memory: the hub's addresses of it, everything else as for the agents' own."""

    hub: MemoryRemote
    name: str

    @property
    def announces(self) -> bool:
        return self.hub.announces

    def url(self, agent_id: AgentId) -> str:
        return f"{self.hub.base_url.rstrip('/')}/v1/git/{agent_id}/repositories/{self.name}.git"

    def environment(self) -> dict[str, str]:
        return self.hub.environment()

    def cleaned(self, text: str) -> str:
        return self.hub.cleaned(text)

    def list_agents(self) -> tuple[AgentId, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class SharingHub:
    """What a hub says of sharing. Blocking: call it on a thread."""

    hub: MemoryRemote
    name_fault: Callable[[str], str | None]
    """Why a name may not be used, or None."""

    def listed(self, agent_id: AgentId) -> Listed | None:
        """Repositories of an agent; None when the hub does not say, and then nothing changes."""
        return listed_in(self.hub.ask(f"/v1/agents/{agent_id}/repositories"), self.name_fault)

    def remote(self, name: str) -> SharedRemote:
        return SharedRemote(self.hub, name)
