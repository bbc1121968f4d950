"""The rooms a client's commands reach, and what all connections share."""

from dataclasses import dataclass

from lodger_daemon.clients.external_tools import ExternalToolRegistry
from lodger_daemon.clients.facts import DeviceFacts
from lodger_daemon.clock import Clock
from lodger_daemon.models.contract import ModelGateway
from lodger_daemon.randomness import Rng
from lodger_daemon.turns.contract import ConversationService


@dataclass(frozen=True, slots=True)
class ClientServices:
    conversations: ConversationService
    models: ModelGateway
    facts: DeviceFacts
    external_tools: ExternalToolRegistry
    clock: Clock
    rng: Rng
