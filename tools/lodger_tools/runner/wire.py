"""How daemon and runner talk: frames over a Unix stream socket. Both sides use this file.

A frame is two big-endian 32-bit lengths, then a JSON object (the header), then raw bytes (the payload).

Daemon to runner (`do`):
    hello   token                                       first, once; anything else before it ends the connection
    start   id key kind cwd env args | payload          run an operation; a known key is answered, never run again;
                                                        with `background`, `started` is the answer while it runs;
                                                        of a `checkout` named, `done` tells in `head` where main is
    resume  id key offset                               the rest of a known call's output and its end
    watch   id key                                      only a known call's end, with the last of its output as text
    input   id key | payload                            bytes for the standard input of a session
    leave   id                                          tell no more of this call; it goes on
    read    id key offset limit                         kept output from there on; a negative offset counts from its end
    cancel  key                                         TERM to the call's group, KILL 2 s later
    list    id · ping id · end id
    stop_all id · stop_leftovers id                     KILL to all processes, or to those of no running call
    door    id port                                     a socket that listens in the box's network

Runner to daemon (`is`):
    hello   version
    output  id offset | payload                         bytes of standard output (and error, of a command) at offset
    gap     id offset bytes                             so many bytes at offset were not kept
    started id                                          a call in the background runs
    done    id status exit_code timed_out cancelled out_of_memory leftovers details | payload
                                                        the one end of a call; text
    unknown id                                          a resumed key that this runner never saw
    dropped id                                          a key whose outcome is no longer kept; never run again
    answer  id …                                        to list, ping, stop_… and end; to door with the socket beside
                                                        it (SCM_RIGHTS), or with `error`; to read with known, start,
                                                        total and ended | payload; to input with known and taken

Limits: what comes from a box is hostile, so the daemon reads small frames only; long output comes as many.
"""

from __future__ import annotations

from lodger_tools.runner.lean_json import dumps, loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VERSION = 2
PREFIX_BYTES = 8
HELLO_LIMIT_BYTES = 4096

TO_RUNNER_HEADER_LIMIT_BYTES = 4 * 1024 * 1024
TO_RUNNER_PAYLOAD_LIMIT_BYTES = 96 * 1024 * 1024
"""Above the largest pack that is sent into a box."""

TO_DAEMON_HEADER_LIMIT_BYTES = 64 * 1024
TO_DAEMON_PAYLOAD_LIMIT_BYTES = 1024 * 1024
OUTPUT_CHUNK_BYTES = 128 * 1024
LAST_OUTPUT_BYTES = 256 * 1024
"""Sent with the end of a watched call: some twenty times what a notification shows."""


class WireError(Exception):
    """The other side sent what is not a frame or is too large; the connection must end."""


def encode_frame(header: dict[str, Any], payload: bytes | bytearray = b"") -> bytes:
    text = dumps(header).encode()
    return b"".join((len(text).to_bytes(4, "big"), len(payload).to_bytes(4, "big"), text, payload))


def fits_into_runner(frame: bytes) -> bool:
    """Whether a runner takes this frame."""
    header_bytes, payload_bytes = int.from_bytes(frame[:4], "big"), int.from_bytes(frame[4:PREFIX_BYTES], "big")
    return header_bytes <= TO_RUNNER_HEADER_LIMIT_BYTES and payload_bytes <= TO_RUNNER_PAYLOAD_LIMIT_BYTES


class FrameReader:
    """Bytes in, whole frames out; refuses lengths above its limits before it waits for their bytes."""

    __slots__ = ("_buffer", "header_limit_bytes", "payload_limit_bytes")

    def __init__(self, header_limit_bytes: int, payload_limit_bytes: int) -> None:
        self.header_limit_bytes = header_limit_bytes
        self.payload_limit_bytes = payload_limit_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[dict[str, Any], bytes]]:
        """Raises: WireError; nothing may be fed afterwards."""
        self._buffer += data
        frames = []
        start = 0
        while len(self._buffer) - start >= PREFIX_BYTES:
            header_bytes = int.from_bytes(self._buffer[start : start + 4], "big")
            payload_bytes = int.from_bytes(self._buffer[start + 4 : start + 8], "big")
            if header_bytes > self.header_limit_bytes or payload_bytes > self.payload_limit_bytes:
                raise WireError(f"a frame of {header_bytes} + {payload_bytes} bytes is too large")
            middle = start + PREFIX_BYTES + header_bytes
            end = middle + payload_bytes
            if len(self._buffer) < end:
                break
            frames.append((parse_header(self._buffer[start + PREFIX_BYTES : middle]), bytes(self._buffer[middle:end])))
            start = end
        if start:
            del self._buffer[:start]
        return frames


def parse_header(data: bytearray) -> dict[str, Any]:
    try:
        header = loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise WireError(f"a frame's header is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise WireError("a frame's header is not an object")
    return header
