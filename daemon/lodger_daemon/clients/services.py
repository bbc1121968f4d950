"""The rooms a client's commands reach, and what all connections share."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from lodger_daemon.clients.external_tools import ExternalToolRegistry
from lodger_daemon.clients.facts import DeviceFacts
from lodger_daemon.clock import Clock
from lodger_daemon.identity import AgentId, ConversationKey
from lodger_daemon.models.contract import ModelGateway
from lodger_daemon.randomness import Rng
from lodger_daemon.turns.contract import ConversationService
from lodger_protocol.memory_commands import MemoryCommand
from lodger_protocol.place_commands import PlaceCommand
from lodger_tools.json_value import JsonObject

Answering: TypeAlias = Callable[[JsonObject], Awaitable[JsonObject]]
"""Given a command as it came, its response without `type`, `request_id` and `success`.

Raises: ConversationError with words for the client.
"""


class MemoryAnswering(Protocol):
    """Answers commands about memory files."""

    def answer(self, command: MemoryCommand) -> AsyncIterator[JsonObject]:
        """All frames for the client that asked, whole and in order. Raises: ConversationError, before the first."""
        ...


class PlaceAnswering(Protocol):
    """Answers commands about folders of this machine."""

    async def answer(self, command: PlaceCommand) -> JsonObject:
        """The payload of the response. Raises: ConversationError."""
        ...


class WorkplaceFacts(Protocol):
    """What goes on in the folder of a conversation that somebody watches. Answers at once, from what is known."""

    def git_context(self, agent_id: AgentId, folder: str, changed: Callable[[], None]) -> JsonObject | None:
        """As the device status shows it; None while nothing is known. `changed` is called once when that turns out
        to be out of date."""
        ...

    def background_processes(self, key: ConversationKey, folder: str) -> tuple[JsonObject, ...]:
        """The conversation's background tasks, and what commands of its agent left running in that folder."""
        ...


@dataclass(frozen=True, slots=True)
class ClientServices:
    conversations: ConversationService
    models: ModelGateway
    facts: DeviceFacts
    external_tools: ExternalToolRegistry
    clock: Clock
    rng: Rng
    answered_elsewhere: Mapping[str, Answering] = field(default_factory=dict)
    """Commands that other rooms answer whole, by type: Lodger's own."""
    memory: MemoryAnswering | None = None
    places: PlaceAnswering | None = None
    workplaces: WorkplaceFacts | None = None
