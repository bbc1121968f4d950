"""What the uplink hands frames to: the daemon's side of each relay client."""

from collections.abc import Awaitable, Callable
from typing import Protocol

SendFrames = Callable[[list[bytes]], Awaitable[None]]
"""Send some frames to the client, in order. Raises: LinkLost when it cannot; the peer is closed then."""


class FramePeer(Protocol):
    """The daemon's end of one client's connection."""

    async def receive(self, frame: bytes) -> None:
        """Take one frame of the client; called in order, the next only after this returned."""
        ...

    async def close(self) -> None:
        """The client has gone. Called once."""
        ...


class HubHearer(Protocol):
    """What the hub says to the daemon itself. Each returns at once."""

    def memory_head(self, agent_id: str, head: str) -> None:
        """An agent's memory has moved on the hub."""
        ...

    def shared_memory_head(self, name: str, head: str) -> None:
        """A memory that agents share has moved on the hub."""
        ...

    def shared_memories_changed(self, agent_id: str) -> None:
        """Other memories than before are attached to an agent."""
        ...

    def devices_revoked(self, device_ids: tuple[str, ...]) -> None:
        """What these devices sent and nobody has begun is to be dropped. May name the same device again."""
        ...


class FrameRouter(Protocol):
    def open(
        self,
        send: SendFrames,
        label: str,
        *,
        wire_name: str | None = None,
        device_id: str = "",
        cut: Callable[[], None] | None = None,
    ) -> FramePeer:
        """A client has come.

        Args:
            send: Hands some frames to the client, in order.
            label: Names the client in logs.
            wire_name: The connection id under which the hub knows this machine.
            device_id: The hub's id of the device the client is on, if it knows one.
            cut: To be called when the daemon gives this client up: its socket at the hub is closed then.
        """
        ...
