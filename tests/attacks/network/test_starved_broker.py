"""A box that opens whatever it may at the broker's doors must not take the other boxes' way out."""

import asyncio
import contextlib
import resource
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

from lodger_daemon.network.broker_process import FoundBroker, start_broker
from lodger_sandbox.egress.core.wire import End, Serve, ServePlain
from lodger_sandbox.egress.doors import CONNECTIONS_PER_BOX
from support.broker_rig import DaemonSide
from support.hub_rig import until
from support.patience import LIMIT_S

DOORS_OF_A_BOX = 4
USUAL_LIMIT, HELD_AT_EACH = 256, 80
"""A smaller limit than most systems', so that a few connections, all below the limits of a box, go beyond it."""


@contextlib.contextmanager
def usual_limit() -> Iterator[None]:
    """Whoever starts a program gives it a soft limit, and it has to ask for more itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (USUAL_LIMIT, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_box_that_holds_what_it_may_leaves_the_next_one_its_way_out(tmp_path: Path) -> None:
    with usual_limit():
        found = await asyncio.to_thread(start_broker, tmp_path, None)
    daemon = DaemonSide(found.folder / "socket")
    await connected(daemon, found)
    with contextlib.ExitStack() as opened:
        # Like those of a box: who connects to an address that its name server made up is asked about, and waits.
        doors = [opened.enter_context(socket.create_server(("0.0.0.0", 0), backlog=512)) for _ in range(6)]
        names = opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        names.bind(("127.0.0.1", 0))
        try:
            daemon.say(Serve("greedy"), doors[0].fileno())
            daemon.say(ServePlain("greedy"), names.fileno(), *(door.fileno() for door in doors[1:DOORS_OF_A_BOX]))
            address = await asyncio.to_thread(made_up_address, names.getsockname())
            assert HELD_AT_EACH < CONNECTIONS_PER_BOX
            held = [
                opened.enter_context(socket.create_connection((address, door.getsockname()[1])))
                for door in doors[:DOORS_OF_A_BOX]
                for _ in range(HELD_AT_EACH)
            ]
            await daemon.event("ask")
            await until(lambda: not any(map(waiting, doors)), "the broker has accepted all of them")
            assert not any(map(is_closed, held)), "some had to end before others got in"
            daemon.say(Serve("other"), doors[4].fileno())
            reader, writer = await asyncio.open_connection("127.0.0.1", doors[4].getsockname()[1])
            writer.write(b"CONNECT 10.0.0.1:443 HTTP/1.1\r\nHost: x\r\n\r\n")
            async with asyncio.timeout(LIMIT_S):
                assert (await reader.read()).startswith(b"HTTP/1.1 403 ")
            writer.close()
        finally:
            with contextlib.suppress(OSError):
                daemon.say(End())
            await daemon.aclose()


def waiting(listener: socket.socket) -> int:
    """How many wait to be accepted there: tcpi_unacked, which means that of a socket that listens."""
    return int(struct.unpack_from("=I", listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), 24)[0])


def is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        return connection.recv(1) == b""
    return False


def made_up_address(name_server: tuple[str, int]) -> str:
    question = b"\0\1\1\0\0\1\0\0\0\0\0\0" + b"\4held\4test\0" + b"\0\1\0\1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(LIMIT_S)
        asking.sendto(question, name_server)
        return socket.inet_ntoa(asking.recv(512)[-4:])


async def connected(daemon: DaemonSide, found: FoundBroker) -> None:
    async with asyncio.timeout(LIMIT_S):
        while True:
            try:
                await daemon.connect(found.token)
                break
            except OSError:
                await asyncio.sleep(0.02)
    await daemon.event("hello")
