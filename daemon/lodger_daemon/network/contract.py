"""What the network room and the conversations are to each other."""

from collections.abc import Sequence
from typing import Protocol

from lodger_tools.box.contract import BoxKey


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


class AllowedHosts(Protocol):
    """The list of allowed hosts, as far as clients may add to it."""

    @property
    def may_grow(self) -> bool: ...

    async def add(self, hosts: Sequence[str]) -> None:
        """Allow these from now on, and write it into the settings. Raises: ValueError; then nothing changed."""
        ...
