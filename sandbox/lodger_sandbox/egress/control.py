"""The broker's own door: one daemon at a time says what is allowed, hands over boxes' sockets and answers questions."""

import asyncio
import hmac
import json
import logging
import os
import socket
from collections import deque
from collections.abc import Coroutine
from typing import Any, Final, assert_never

from lodger_sandbox.egress.core.wire import (
    LINE_LIMIT_BYTES,
    VERSION,
    BadLine,
    Decide,
    End,
    ForgetBox,
    Hello,
    Order,
    Ping,
    Serve,
    ServePlain,
    SetAllowList,
    read_order,
)
from lodger_sandbox.egress.doors import Doors, GatedWay
from lodger_sandbox.egress.gate import Asked, AskOver, Denied, Gate, GateEvent, Passed
from lodger_sandbox.egress.plain_doors import PlainDoors

_PIECE_BYTES: Final = 64 * 1024
_DESCRIPTORS_AT_ONCE: Final = 16
_BACKLOG_LIMIT_BYTES: Final = 1024 * 1024
"""Of events a daemon does not read: beyond it the connection is closed, and the next daemon gets what is kept."""
ORPHAN_S: Final = 1800.0
"""As long as a box waits for a daemon. A later one starts another broker and gives it the boxes again."""
ORPHAN_LOOK_S: Final = 30.0
PLAIN_SOCKETS: Final = 4
"""As `inside_sockets` makes them: UDP 53, TCP 80, 443, 22."""

logger = logging.getLogger(__name__)


class Broker:
    """Everything this process is. Event loop only."""

    def __init__(
        self, listener: socket.socket, token: str, ask_limit_s: float | None = None, orphan_s: float = ORPHAN_S
    ) -> None:
        self._listener = listener
        self._token = token
        self._orphan_s = orphan_s
        self._daemon: _Connection | None = None
        self.gate = Gate(self._tell, *(() if ask_limit_s is None else (ask_limit_s,)))
        self._doors: dict[str, Doors] = {}
        self._plain: dict[str, PlainDoors] = {}
        self._ended = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Until told to end."""
        loop = asyncio.get_running_loop()
        self._listener.setblocking(False)
        loop.add_reader(self._listener.fileno(), self._accept)
        self._own(self._end_as_orphan())
        try:
            await self._ended.wait()
        finally:
            loop.remove_reader(self._listener.fileno())
            if self._daemon is not None:
                self._daemon.close()
            every: tuple[Doors | PlainDoors, ...] = (*self._doors.values(), *self._plain.values())
            await asyncio.gather(*(doors.aclose() for doors in every), return_exceptions=True)
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _end_as_orphan(self) -> None:
        """A machine whose daemon is gone for good keeps no broker."""
        clock = asyncio.get_running_loop().time
        wanted_at = clock()
        while clock() - wanted_at < self._orphan_s:
            await asyncio.sleep(min(ORPHAN_LOOK_S, self._orphan_s))
            doors: list[Doors | PlainDoors] = [*self._doors.values(), *self._plain.values()]
            if self._daemon is not None or any(one.busy for one in doors):
                wanted_at = clock()
        self._ended.set()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        connection.setblocking(False)
        _Connection(connection, self)

    def greeted(self, connection: "_Connection", token: str) -> bool:
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            return False
        if self._daemon is not None:
            self._daemon.close()
        self._daemon = connection
        connection.send({"is": "hello", "version": VERSION, "boxes": sorted(self._doors)})
        self.gate.daemon_came()
        return True

    def left(self, connection: "_Connection") -> None:
        if self._daemon is connection:
            self._daemon = None
            self.gate.daemon_left()

    def obey(self, order: Order, descriptors: deque[int]) -> None:
        """Raises: BadLine."""
        match order:
            case Hello():
                raise BadLine("one greeting is enough")
            case SetAllowList(allow):
                self.gate.set_allow_list(allow)
            case Serve(box):
                if not descriptors:
                    raise BadLine("a box without its socket")
                self._own(self._serve(box, socket.socket(fileno=descriptors.popleft())))
            case ServePlain(box):
                if len(descriptors) < PLAIN_SOCKETS:
                    raise BadLine("a box without its sockets")
                sockets = [socket.socket(fileno=descriptors.popleft()) for _ in range(PLAIN_SOCKETS)]
                self._own(self._serve_plain(box, sockets))
            case ForgetBox(box):
                self.gate.forget_box(box)
                for doors in (self._doors.pop(box, None), self._plain.pop(box, None)):
                    if doors is not None:
                        self._own(doors.aclose())
            case Decide(ask, allowed, grant_s):
                self.gate.decide(ask, allowed, grant_s)
            case Ping(number):
                if self._daemon is not None:
                    self._daemon.send({"is": "pong", "number": number})
            case End():
                self._ended.set()
            case _:
                assert_never(order)

    async def _serve(self, box: str, listener: socket.socket) -> None:
        if box in self._doors:
            # The same socket again, from a daemon that was started anew.
            listener.close()
            return
        doors = self._doors[box] = Doors(listener, GatedWay(self.gate, box))
        try:
            await doors.open()
        except OSError as error:
            logger.warning("the socket of box %s cannot be accepted on: %s", box, error)
            del self._doors[box]

    async def _serve_plain(self, box: str, sockets: list[socket.socket]) -> None:
        if box in self._plain:
            for one in sockets:
                one.close()
            return
        doors = self._plain[box] = PlainDoors(sockets[0], sockets[1:], GatedWay(self.gate, box))
        try:
            await doors.open()
        except OSError as error:
            logger.warning("the plain sockets of box %s cannot be used: %s", box, error)
            del self._plain[box]

    def _own(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _tell(self, event: GateEvent) -> None:
        if self._daemon is not None:
            self._daemon.send(_as_json(event))


class _Connection:
    """One accepted connection; closed at the first line that is not of the wire."""

    def __init__(self, connection: socket.socket, broker: Broker) -> None:
        self._socket = connection
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._read = b""
        self._unsent = bytearray()
        self._descriptors: deque[int] = deque()
        self._trusted = False
        self._closed = False
        self._loop.add_reader(connection.fileno(), self._readable)

    def send(self, value: dict[str, object]) -> None:
        if self._closed:
            return
        if not self._unsent:
            self._loop.add_writer(self._socket.fileno(), self._writable)
        self._unsent += json.dumps(value).encode() + b"\n"
        if len(self._unsent) > _BACKLOG_LIMIT_BYTES:
            self.close()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._broker.left(self)

    def _readable(self) -> None:
        try:
            piece, descriptors, _, _ = socket.recv_fds(self._socket, _PIECE_BYTES, _DESCRIPTORS_AT_ONCE)
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        self._descriptors.extend(descriptors)
        self._read += piece
        if not piece or len(self._read) > LINE_LIMIT_BYTES:
            self.close()
            return
        *lines, self._read = self._read.split(b"\n")
        for line in lines:
            try:
                self._take(line)
            except BadLine as error:
                logger.warning("a connection to the broker was closed: %s", error)
                self.close()
            if self._closed:
                return

    def _take(self, line: bytes) -> None:
        order = read_order(line)
        if self._trusted:
            self._broker.obey(order, self._descriptors)
            return
        self._trusted = isinstance(order, Hello) and self._broker.greeted(self, order.token)
        if not self._trusted:
            raise BadLine("no greeting, or a wrong token")

    def _writable(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        del self._unsent[:sent]
        if not self._unsent:
            self._loop.remove_writer(self._socket.fileno())


def _as_json(event: GateEvent) -> dict[str, object]:
    match event:
        case Asked(ask, box, to):
            return {"is": "ask", "ask": ask, "box": box, "to": str(to)}
        case AskOver(ask):
            return {"is": "ask_over", "ask": ask}
        case Passed(box, to, by):
            return {"is": "passed", "box": box, "to": str(to), "by": by}
        case Denied(box, to, reason):
            return {"is": "denied", "box": box, "to": str(to), "reason": reason}
        case _:
            assert_never(event)
