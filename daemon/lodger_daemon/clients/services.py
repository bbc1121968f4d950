"""The rooms a client's commands reach, and what all connections share."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from lodger_daemon.clients.external_tools import ExternalToolRegistry
from lodger_daemon.clients.facts import DeviceFacts
from lodger_daemon.clock import Clock
from lodger_daemon.models.contract import ModelGateway
from lodger_daemon.randomness import Rng
from lodger_daemon.turns.contract import ConversationService
from lodger_tools.json_value import JsonObject

Answering: TypeAlias = Callable[[JsonObject], Awaitable[JsonObject]]
"""Given a command as it came, its response without `type`, `request_id` and `success`.

Raises: ConversationError with words for the client.
"""


@dataclass(frozen=True, slots=True)
class ClientServices:
    conversations: ConversationService
    models: ModelGateway
    facts: DeviceFacts
    external_tools: ExternalToolRegistry
    clock: Clock
    rng: Rng
    answered_elsewhere: Mapping[str, Answering] = field(default_factory=dict)
    """Commands that other rooms answer whole, by type: Lodger's own, and those of memory."""
