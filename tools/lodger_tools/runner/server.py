"""The runner's door: the listener, authenticated connections, and what they may ask."""

from __future__ import annotations

import _operator
import _socket
import os
from time import monotonic

from lodger_tools.runner.calls import Call, CallBook
from lodger_tools.runner.children import Children
from lodger_tools.runner.connection import Connection
from lodger_tools.runner.door import DoorBook
from lodger_tools.runner.kept_output import KeptOutput
from lodger_tools.runner.memory_rank import MemoryRank
from lodger_tools.runner.memory_watch import MemoryWatch
from lodger_tools.runner.operations import Operations
from lodger_tools.runner.poll import READABLE, Poll
from lodger_tools.runner.wire import LAST_OUTPUT_BYTES, VERSION, WireError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

CONNECTION_LIMIT = 8
HELLO_WITHIN_S = 10.0
ORPHAN_CHECK_S = 30.0
RUNNING_LIMIT = 32
"""BEHAVIOUR.md C3."""


class Server:
    def __init__(self, listener_fd: int, token: bytes, orphan_s: float, rank_fd: int) -> None:
        self._token = token
        self._orphan_s = orphan_s
        self._poll = Poll()
        self._children = Children(self._poll, MemoryRank(rank_fd))
        self._book = CallBook()
        self._memory = MemoryWatch(self._poll, self._children, self._book)
        self._doors = DoorBook()
        self._operations = Operations(self._poll, self._children, self._running_pids)
        self._connections: list[Connection] = []
        self._wanted_at = monotonic()
        self._listener = _socket.socket(fileno=listener_fd)
        self._listener.setblocking(False)
        self._poll.watch(listener_fd, READABLE, self._accept)
        self._poll.after(min(ORPHAN_CHECK_S, orphan_s), self._check_orphan)

    def run(self) -> None:
        self._poll.run()
        self._children.kill_all()

    def _accept(self, mask: int) -> None:
        try:
            # The C half of socket has no other accept; it returns the descriptor and the address.
            fd, _address = self._listener._accept()  # type: ignore[attr-defined]  # not in the stubs
        except OSError:
            return
        if len(self._connections) >= CONNECTION_LIMIT:
            os.close(fd)
            return
        os.set_blocking(fd, False)
        connection = Connection(fd, self._poll, self._received, self._closed)
        self._connections.append(connection)
        self._poll.after(HELLO_WITHIN_S, connection.close_unless_trusted)

    def _closed(self, connection: Connection) -> None:
        self._wanted_at = monotonic()
        if connection in self._connections:
            self._connections.remove(connection)

    def _check_orphan(self) -> None:
        trusted = any(connection.trusted for connection in self._connections)
        if trusted or self._book.running() or self._children.leftovers(set()) > 0:
            self._wanted_at = monotonic()
        elif monotonic() - self._wanted_at >= self._orphan_s:
            self._poll.running = False
        self._poll.after(min(ORPHAN_CHECK_S, self._orphan_s), self._check_orphan)

    def _running_pids(self) -> set[int]:
        return {call.pid for call in self._book.running() if call.pid is not None}

    def _received(self, connection: Connection, header: dict[str, Any], payload: bytes) -> None:
        """Raises: WireError for whatever a daemon would not send."""
        if not connection.trusted:
            self._greet(connection, header)
            return
        try:
            self._serve(connection, header, payload)
        except (KeyError, TypeError, ValueError) as error:
            raise WireError(f"a request of another shape: {error!r}") from None

    def _greet(self, connection: Connection, header: dict[str, Any]) -> None:
        token = header.get("token")
        if header.get("do") != "hello" or not isinstance(token, str):
            raise WireError("no greeting")
        if not _operator._compare_digest(token.encode(), self._token):
            raise WireError("wrong token")
        connection.trust()
        connection.send({"is": "hello", "version": VERSION})

    def _serve(self, connection: Connection, header: dict[str, Any], payload: bytes) -> None:
        match header["do"]:
            case "start":
                self._start(connection, header, payload)
            case "resume" | "watch":
                self._resume(connection, header)
            case "leave":
                connection.leave(header["id"])
            case "read":
                self._read(connection, header)
            case "cancel":
                call = self._book.find(header["key"])
                if call is not None and call.done is None:
                    call.cancel()
            case "ping":
                connection.send({"is": "answer", "id": header["id"]})
            case "list":
                connection.send({"is": "answer", "id": header["id"], **self._listing()})
            case "stop_all":
                connection.send({"is": "answer", "id": header["id"], "stopped": self._children.kill_all()})
            case "stop_leftovers":
                ended = self._children.make_room(self._running_pids())
                connection.send({"is": "answer", "id": header["id"], "stopped": ended})
            case "input":
                call = self._book.find(header["key"])
                taken = call is not None and call.done is None and call.write(payload)
                connection.send({"is": "answer", "id": header["id"], "known": call is not None, "taken": taken})
            case "door":
                self._door(connection, header["id"], header["port"])
            case "end":
                self._poll.running = False
            case other:
                raise WireError(f"an unknown request: {other!r}")

    def _door(self, connection: Connection, answer_id: int, port: int) -> None:
        answer = {"is": "answer", "id": answer_id}
        try:
            descriptor = self._doors.descriptor(port)
        except OSError as error:
            connection.send({**answer, "error": f"port {port} of the box is taken: {error}"})
        else:
            connection.send_with_descriptor(answer, descriptor)

    def _listing(self) -> dict[str, Any]:
        self._children.reap()
        running = self._book.running()
        return {
            "running": [call.key for call in running][:RUNNING_LIMIT],
            "leftovers": self._children.leftovers(self._running_pids()),
        }

    def _start(self, connection: Connection, header: dict[str, Any], payload: bytes) -> None:
        key, background = header["key"], header.get("background") is True
        known = self._book.find(key)
        if known is not None:
            tell_of(connection, header["id"], known, background)
            return
        if self._book.was_dropped(key):
            connection.send({"is": "dropped", "id": header["id"]})
            return
        call = Call(key, KeptOutput())
        if "checkout" in header:
            call.at_end = _head_of(header["checkout"])
        self._book.add(call)
        if not background:
            connection.follow(header["id"], call, 0)
        if len(self._book.running()) > RUNNING_LIMIT:
            call.finish("error", f"{RUNNING_LIMIT} calls run in this box already; wait for one of them.")
        else:
            self._operations.start(call, header["kind"], header["args"], header["cwd"], header["env"], payload)
            if call.done is None:
                self._memory.arm()
        if background:
            tell_of(connection, header["id"], call, background)

    def _resume(self, connection: Connection, header: dict[str, Any]) -> None:
        call = self._book.find(header["key"])
        if call is not None:
            connection.follow(header["id"], call, header["offset"] if header["do"] == "resume" else None)
        elif self._book.was_dropped(header["key"]):
            connection.send({"is": "dropped", "id": header["id"]})
        else:
            connection.send({"is": "unknown", "id": header["id"]})

    def _read(self, connection: Connection, header: dict[str, Any]) -> None:
        answer = {"is": "answer", "id": header["id"]}
        call = self._book.find(header["key"])
        if call is None:
            connection.send({**answer, "known": False})
            return
        start, data = call.output.part(header["offset"], min(header["limit"], LAST_OUTPUT_BYTES))
        ended = call.done is not None
        connection.send(
            {**answer, "known": True, "start": start, "total": call.output.total_bytes, "ended": ended}, data
        )


def _head_of(checkout: str) -> Callable[[], dict[str, Any]]:
    from lodger_tools.runner.read_head import head_at_end

    return lambda: head_at_end(checkout)


def tell_of(connection: Connection, call_id: int, call: Call, background: bool) -> None:
    if background and call.done is None:
        connection.send({"is": "started", "id": call_id})
    else:
        connection.follow(call_id, call, 0)
