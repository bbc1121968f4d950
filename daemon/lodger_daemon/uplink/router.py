"""What the uplink hands frames to: the daemon's side of each relay client."""

from collections.abc import Awaitable, Callable
from typing import Protocol

SendFrame = Callable[[bytes], Awaitable[None]]
"""Send one frame to the client. Raises: LinkLost when it cannot; the peer is closed then."""


class FramePeer(Protocol):
    """The daemon's end of one client's connection."""

    async def receive(self, frame: bytes) -> None:
        """Take one frame of the client; called in order, the next only after this returned."""
        ...

    async def close(self) -> None:
        """The client has gone. Called once."""
        ...


class FrameRouter(Protocol):
    def open(
        self,
        send: SendFrame,
        label: str,
        *,
        wire_name: str | None = None,
        cut: Callable[[], None] | None = None,
    ) -> FramePeer:
        """A client has come.

        Args:
            send: Hands one frame to the client.
            label: Names the client in logs.
            wire_name: The connection id under which the hub knows this machine.
            cut: To be called when the daemon gives this client up: its socket at the hub is closed then.
        """
        ...
