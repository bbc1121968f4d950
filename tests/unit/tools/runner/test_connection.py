"""What goes over the runner's end of a connection, write by write."""

import socket
from collections.abc import Callable, Iterator

import pytest

from lodger_tools.runner import connection
from lodger_tools.runner.calls import Call
from lodger_tools.runner.connection import WAITING_LOW_BYTES, Connection
from lodger_tools.runner.kept_output import KeptOutput
from lodger_tools.runner.poll import WRITABLE
from lodger_tools.runner.wire import TO_DAEMON_HEADER_LIMIT_BYTES, TO_DAEMON_PAYLOAD_LIMIT_BYTES, FrameReader


class NeverReady:
    """In the place of `Poll`, whose signals are the whole process's."""

    def __init__(self) -> None:
        self.masks: dict[int, int] = {}
        self.handlers: dict[int, Callable[[int], None]] = {}

    def watch(self, fd: int, mask: int, handler: Callable[[int], None]) -> None:
        self.masks[fd], self.handlers[fd] = mask, handler

    def change(self, fd: int, mask: int) -> None:
        self.masks[fd] = mask

    def forget(self, fd: int) -> None:
        del self.masks[fd]


class Room:
    def __init__(self, kind: socket.SocketKind) -> None:
        self.daemon, runner = socket.socketpair(socket.AF_UNIX, kind)
        self.daemon.setblocking(False)
        runner.setblocking(False)
        self.takes = runner.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        self.fd = runner.detach()
        self.poll = NeverReady()
        self.connection = Connection(self.fd, self.poll, lambda *_: None, lambda _: None)  # type: ignore[arg-type]
        self.reader = FrameReader(TO_DAEMON_HEADER_LIMIT_BYTES, TO_DAEMON_PAYLOAD_LIMIT_BYTES)

    def writes(self) -> list[list[str]]:
        """The kinds of frames in each write that has been made (of a stream, in each read)."""
        seen = []
        while True:
            try:
                data = self.daemon.recv(2 * WAITING_LOW_BYTES)
            except BlockingIOError:
                return seen
            assert data, "the connection was closed"
            seen.append([str(header["is"]) for header, _ in self.reader.feed(data)])

    def frames(self) -> list[str]:
        return [kind for write in self.writes() for kind in write]


@pytest.fixture(params=[socket.SOCK_SEQPACKET])
def room(request: pytest.FixtureRequest) -> Iterator[Room]:
    """So, each write can be told from the next."""
    room = Room(request.param)
    yield room
    room.connection.close()
    room.daemon.close()


def test_output_goes_when_it_is_written_and_the_end_when_it_comes(room: Room) -> None:
    call = Call("k", KeptOutput())
    room.connection.follow(1, call, 0)
    call.output.append(b"a")
    call.changed()
    assert room.writes() == [["output"]]
    call.finish("success")
    assert room.writes() == [["done"]]


def test_the_last_output_and_the_end_go_as_one(room: Room) -> None:
    call = Call("k", KeptOutput())
    room.connection.follow(1, call, 0)
    call.output.append(b"a")
    call.finish("success")
    assert room.writes() == [["output", "done"]]


@pytest.mark.parametrize("room", [socket.SOCK_STREAM], indirect=True)
def test_what_is_more_than_the_socket_takes_goes_as_it_is_taken(room: Room) -> None:
    call = Call("k", KeptOutput())
    call.output.append(bytes(3 * WAITING_LOW_BYTES))
    call.finish("success")
    room.connection.follow(1, call, 0)
    assert room.poll.masks[room.fd] & WRITABLE, f"the socket has taken more than the {room.takes} bytes it should"
    kinds = room.frames()
    while room.poll.masks[room.fd] & WRITABLE:
        room.poll.handlers[room.fd](WRITABLE)
        kinds += room.frames()
    assert kinds == ["output"] * 6 + ["done"]


@pytest.mark.parametrize("room", [socket.SOCK_STREAM], indirect=True)
def test_what_is_more_than_one_round_all_goes_while_the_socket_takes_it(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "WAITING_LOW_BYTES", 1)
    call = Call("k", KeptOutput())
    call.output.append(b"a")
    call.finish("success")
    room.connection.follow(1, call, 0)
    assert room.frames() == ["output", "done"]
