"""One connection of a daemon: frames in, and out as fast as the daemon reads, without a queue that could grow."""

from __future__ import annotations

import os

from lodger_tools.runner.poll import READABLE, WRITABLE
from lodger_tools.runner.wire import (
    HELLO_LIMIT_BYTES,
    LAST_OUTPUT_BYTES,
    OUTPUT_CHUNK_BYTES,
    TO_DAEMON_PAYLOAD_LIMIT_BYTES,
    TO_RUNNER_HEADER_LIMIT_BYTES,
    TO_RUNNER_PAYLOAD_LIMIT_BYTES,
    FrameReader,
    WireError,
    encode_frame,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from lodger_tools.runner.calls import Call
    from lodger_tools.runner.poll import Poll

READ_BYTES = 64 * 1024
"""From 128 KiB on the C library maps fresh memory for each read, which takes longer than a read of some frames."""
WAITING_LOW_BYTES = 256 * 1024
"""Output is taken from the calls only while less than this waits to be sent."""
WAITING_LIMIT_BYTES = 16 * 1024 * 1024


class Follower:
    """How far one connection has been told of one call; with the offset None, it waits for the end alone."""

    __slots__ = ("call", "id", "offset")

    def __init__(self, call_id: int, call: Call, offset: int | None) -> None:
        self.id = call_id
        self.call = call
        self.offset = offset


class Connection:
    __slots__ = (
        "_closed",
        "_fd",
        "_followers",
        "_on_closed",
        "_on_frame",
        "_out",
        "_poll",
        "_reader",
        "_writing",
        "trusted",
    )

    def __init__(
        self,
        fd: int,
        poll: Poll,
        on_frame: Callable[[Connection, dict[str, Any], bytes], None],
        on_closed: Callable[[Connection], None],
    ) -> None:
        self._fd = fd
        self._poll = poll
        self._on_frame = on_frame
        self._on_closed = on_closed
        self._out = bytearray()
        self._followers: list[Follower] = []
        self._writing = False
        self._closed = False
        self._reader = FrameReader(HELLO_LIMIT_BYTES, 0)
        self.trusted = False
        poll.watch(fd, READABLE, self._ready)

    def trust(self) -> None:
        self.trusted = True
        self._reader.header_limit_bytes = TO_RUNNER_HEADER_LIMIT_BYTES
        self._reader.payload_limit_bytes = TO_RUNNER_PAYLOAD_LIMIT_BYTES

    def close_unless_trusted(self) -> None:
        if not self.trusted:
            self.close()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for follower in self._followers:
            if self._pump in follower.call.watchers:
                follower.call.watchers.remove(self._pump)
        self._followers.clear()
        self._poll.forget(self._fd)
        os.close(self._fd)
        self._on_closed(self)

    def send(self, header: dict[str, Any], payload: bytes = b"") -> None:
        self._out += encode_frame(header, payload)
        if len(self._out) > WAITING_LIMIT_BYTES:
            self.close()
            return
        self._flush()

    def send_with_descriptor(self, header: dict[str, Any], descriptor: int) -> None:
        """A frame and, beside it, a copy of the descriptor. Only on a connection where nothing waits to be sent."""
        import _socket
        import sys

        beside = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptor.to_bytes(4, sys.byteorder))
        end = _socket.socket(fileno=self._fd)
        frame = encode_frame(header)
        try:
            if self._out or end.sendmsg([frame], [beside]) < len(frame):
                self.close()
        except OSError:
            self.close()
        finally:
            end.detach()

    def follow(self, call_id: int, call: Call, offset: int | None) -> None:
        """Send the call's output from `offset` on, what is to come as it comes, and its end. With None only the end,
        which brings the last of the output."""
        self._followers.append(Follower(call_id, call, offset))
        if self._pump not in call.watchers:
            call.watchers.append(self._pump)
        self._pump()

    def leave(self, call_id: int) -> None:
        for follower in tuple(self._followers):
            if follower.id == call_id:
                self._forget(follower)

    def _forget(self, follower: Follower) -> None:
        call = follower.call
        self._followers.remove(follower)
        if all(other.call is not call for other in self._followers) and self._pump in call.watchers:
            call.watchers.remove(self._pump)

    def _ready(self, mask: int) -> None:
        if mask & WRITABLE:
            self._flush()
            self._pump()
        if self._closed or not mask & ~WRITABLE:
            return
        try:
            data = os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._take(data)
        else:
            self.close()

    def _take(self, data: bytes) -> None:
        try:
            for header, payload in self._reader.feed(data):
                if self._closed:
                    return
                self._on_frame(self, header, payload)
        except WireError:
            self.close()

    def _pump(self) -> None:
        """Move output of the followed calls towards the socket, while it takes it."""
        while self._gather():
            self._flush()
            if self._out or self._closed:
                return

    def _gather(self) -> bool:
        """Make frames of what the calls have, for one write: each wakes the daemon. Whether there was anything."""
        found, moved = False, True
        while moved and len(self._out) < WAITING_LOW_BYTES:
            moved = False
            for follower in tuple(self._followers):
                if len(self._out) >= WAITING_LOW_BYTES:
                    break
                moved = self._pump_one(follower) or moved
            found = found or moved
        return found

    def _pump_one(self, follower: Follower) -> bool:
        call = follower.call
        output = call.output
        if follower.offset is None:
            # Looked for only at the end: taking it out at each new piece of output would cost more than writing it did.
            return call.done is not None and self._tell_end(
                follower, output.part(-LAST_OUTPUT_BYTES, LAST_OUTPUT_BYTES)[1]
            )
        if call.done is None and follower.offset >= output.head_limit_bytes:
            # The end of a flood is shown when the call has ended; nobody reads that fast.
            return False
        if follower.offset < output.total_bytes:
            data = output.read(follower.offset, OUTPUT_CHUNK_BYTES)
            if data:
                header = {"is": "output", "id": follower.id, "offset": follower.offset}
                follower.offset += len(data)
            else:
                gap = output.tail_start - follower.offset
                header = {"is": "gap", "id": follower.id, "offset": follower.offset, "bytes": gap}
                follower.offset += gap
            self._out += encode_frame(header, data)
            return True
        return self._tell_end(follower)

    def _tell_end(self, follower: Follower, output: bytes = b"") -> bool:
        call = follower.call
        if call.done is None:
            return False
        text = (output + call.text)[:TO_DAEMON_PAYLOAD_LIMIT_BYTES]
        self._out += encode_frame({"is": "done", "id": follower.id, **call.done}, text)
        call.delivered = True
        self._forget(follower)
        return True

    def _flush(self) -> None:
        if self._closed:
            return
        try:
            while self._out:
                del self._out[: os.write(self._fd, self._out)]
        except BlockingIOError:
            pass
        except OSError:
            self.close()
            return
        if bool(self._out) != self._writing:
            self._writing = bool(self._out)
            self._poll.change(self._fd, READABLE | WRITABLE if self._writing else READABLE)
