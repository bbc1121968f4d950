"""What the ports room, the conversations and the person's settings are to each other."""

from collections.abc import Sequence
from typing import Protocol

from lodger_tools.box.contract import BoxKey


class PortRules(Protocol):
    """The ports that are opened without asking, as far as clients may add to them."""

    @property
    def may_grow(self) -> bool: ...

    def opens(self, workspace: str, port: int) -> bool: ...

    async def add(self, workspace: str, ports: Sequence[int]) -> None:
        """Open these from now on, and write it into the settings. Raises: ValueError; then nothing changed."""
        ...


class PortAsker(Protocol):
    """Asks the person about ports that a box's programs listen at."""

    def can_ask(self, box: BoxKey) -> bool:
        """Whether a conversation works in this box now whose client can show a question."""
        ...

    async def ask_about_ports(self, box: BoxKey, ports: Sequence[int], rules: PortRules) -> frozenset[int] | None:
        """Those that a person allows; None when nobody has answered. What they allow for always is in the rules by
        then. Cancelled when nobody waits for the answer any more: then the question is taken back, unless the daemon
        stops."""
        ...

    def tell(self, box: BoxKey, text: str) -> None:
        """Show a line in the conversation that works in this box, or was the last to; nothing where there is none."""
        ...
