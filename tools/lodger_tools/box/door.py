"""Fetching the socket that listens inside a box, for whoever accepts on it outside. Blocks; runs in a thread."""

import os
import socket
from typing import Final

from lodger_tools.box import record as records
from lodger_tools.box.contract import BoxLost
from lodger_tools.runner.wire import (
    TO_DAEMON_HEADER_LIMIT_BYTES,
    VERSION,
    FrameReader,
    WireError,
    encode_frame,
)

ANSWER_WITHIN_S: Final = 5.0
_PIECE_BYTES: Final = 64 * 1024


def take_door(found: records.FoundBox, port: int) -> socket.socket:
    """The listening socket at the box's 127.0.0.1:port; the box keeps a copy of it.

    Raises: BoxLost when the runner does not answer as it should, also when something in the box has the port already.
    """
    try:
        with records.connect(found.folder) as connection:
            connection.settimeout(ANSWER_WITHIN_S)
            connection.sendall(encode_frame({"do": "hello", "token": found.token}))
            connection.sendall(encode_frame({"do": "door", "id": 1, "port": port}))
            return _received(connection)
    except (OSError, WireError) as error:
        raise BoxLost(f"the box gave no way out: {error}") from error


def _received(connection: socket.socket) -> socket.socket:
    reader = FrameReader(TO_DAEMON_HEADER_LIMIT_BYTES, 0)
    descriptors: list[int] = []
    try:
        while True:
            data, more, _, _ = socket.recv_fds(connection, _PIECE_BYTES, 2)
            descriptors += more
            if not data:
                raise BoxLost("the box has ended")
            for header, _payload in reader.feed(data):
                if header.get("is") == "hello" and header.get("version") != VERSION:
                    raise BoxLost("the runner speaks another version")
                if header.get("is") == "answer":
                    return _listener(descriptors, header.get("error"))
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _listener(descriptors: list[int], error: object) -> socket.socket:
    """What a box sends is not taken for what it should be: only a listening TCP socket is of use."""
    if not descriptors:
        raise BoxLost(f"the box gave no way out: {str(error)[:200]}")
    door = socket.socket(fileno=descriptors.pop(0))
    try:
        is_tcp = door.family == socket.AF_INET and door.type == socket.SOCK_STREAM
        if not is_tcp or not door.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            raise BoxLost("the box gave something else than a listening socket")
    except BaseException:
        door.close()
        raise
    return door
