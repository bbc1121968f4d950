"""What the network room and the conversations are to each other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from lodger_daemon.identity import ConversationKey, RunId, ToolCallId, TurnId
from lodger_tools.box.contract import BoxKey
from lodger_tools.json_value import JsonObject


class HostAsker(Protocol):
    """Asks the person about hosts that a box's programs want to reach."""

    def can_ask(self, box: BoxKey) -> bool:
        """Whether a conversation works in this box now whose client can show a question."""
        ...

    async def ask_about_hosts(self, box: BoxKey, hosts: Sequence[str]) -> frozenset[str] | None:
        """Those of the hosts that a person allows; None when nobody has answered. Cancelled when nobody waits for the
        answer any more: then the question is taken back, unless the daemon stops.

        Args:
            hosts: each `host:port`.
        """
        ...

    def tell(self, box: BoxKey, text: str) -> bool:
        """Show a line in the conversation that was the last to work in this box. False = it was not shown: a turn works
        there, whose results say what was refused, or there is no such conversation."""
        ...


@dataclass(frozen=True, slots=True)
class WorkInBox:
    """What goes on in a box: a turn and those of its calls that run there, or a command that an earlier turn left
    running. Without a call it is what ended calls left behind, if it is anything of this turn."""

    conversation: ConversationKey
    turn_id: TurnId | None
    """None once that turn has ended."""
    run_id: RunId | None
    calls: tuple[ToolCallId, ...]

    def as_json(self) -> JsonObject:
        """As the audit log has it."""
        where = {"conversation": self.conversation.conversation_id, "turn": self.turn_id, "run": self.run_id}
        return {**where, "calls": [*self.calls]}


WorkIn: TypeAlias = Callable[[BoxKey], tuple[WorkInBox, ...]]
"""Asked at the moment something happens in a box."""


class AllowedHosts(Protocol):
    """The list of allowed hosts, as far as clients may add to it."""

    @property
    def may_grow(self) -> bool: ...

    async def add(self, hosts: Sequence[str]) -> None:
        """Allow these from now on, and write it into the settings. Raises: ValueError; then nothing changed."""
        ...
