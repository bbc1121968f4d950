"""The box's way out: a socket that listens inside the box's own network and is accepted on outside of it.

A socket keeps the network namespace it was made in, so nothing has to be relayed in here (SANDBOX-NOTES.md section 4).
The runner keeps a copy: a program that connects while nobody outside accepts waits in the backlog.
"""

from __future__ import annotations

import _socket

LOOPBACK = "127.0.0.1"
BACKLOG = 128


class DoorBook:
    """The listening sockets of this box, by port; made when first asked for, which is before anything runs here."""

    __slots__ = ("_doors",)

    def __init__(self) -> None:
        self._doors: dict[int, _socket.socket] = {}

    def descriptor(self, port: int) -> int:
        """Raises: OSError when something else listens there."""
        door = self._doors.get(port)
        if door is None:
            door = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
            try:
                door.bind((LOOPBACK, port))
                door.listen(BACKLOG)
            except OSError:
                door.close()
                raise
            self._doors[port] = door
        return door.fileno()
