"""Programs that know of no proxy, through the whole broker: they ask its name server and connect to what it says."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from lodger_sandbox.egress.core.wire import ForgetBox, ServePlain
from support.broker_rig import Rig, broker_rig, upstream
from support.patience import LIMIT_S


@dataclass(slots=True)
class Inside:
    """What a box has: a name server, and addresses of its own. Here these are this machine's."""

    rig: Rig
    name_server: tuple[str, int]
    port: int

    async def resolve(self, name: str) -> str:
        def ask() -> bytes:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as resolver:
                resolver.settimeout(LIMIT_S)
                resolver.connect(self.name_server)
                labels = b"".join(bytes((len(label),)) + label.encode() for label in name.split("."))
                resolver.send(struct.pack("!HHHHHH", 9, 0x100, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!HH", 1, 1))
                return resolver.recv(512)

        return str(IPv4Address((await asyncio.to_thread(ask))[-4:]))

    async def says(self, address: str, words: bytes = b"hello!") -> bytes:
        """Everything that comes back."""
        reader, writer = await asyncio.open_connection(address, self.port)
        with contextlib.suppress(OSError):
            writer.write(words)
            writer.write_eof()
        async with asyncio.timeout(LIMIT_S):
            with contextlib.suppress(OSError):
                return await reader.read()
        return b""


@pytest.fixture
async def inside(tmp_path: Path) -> AsyncIterator[Inside]:
    """The upstream of every test has the same port, as ports are the same inside and outside."""
    async with broker_rig(tmp_path) as rig, upstream(b"pong") as there:
        name_server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        name_server.setsockopt(socket.IPPROTO_IP, 8, 1)
        # As in a box, where it is asked at whatever address the system names; the answer must come from that one.
        name_server.bind(("0.0.0.0", 0))
        listeners = [socket.create_server((f"127.64.0.{last}", there.port)) for last in (1, 2, 3)]
        sockets = [name_server, *listeners]
        made = Inside(rig, ("127.0.0.53", name_server.getsockname()[1]), there.port)
        rig.daemon.say(ServePlain("box-1"), *(one.fileno() for one in sockets))
        for one in sockets:
            one.close()
        yield made


async def test_a_name_on_the_list_is_reached_and_every_other_is_not(inside: Inside) -> None:
    inside.rig.daemon.allow(f"localhost:{inside.port}", f"127.0.0.1:{inside.port}")
    assert await inside.says(await inside.resolve("localhost")) == b"pong"
    other = asyncio.create_task(inside.says(await inside.resolve("other.test")))
    asked = await inside.rig.daemon.event("ask")
    assert asked["to"] == f"other.test:{inside.port}"
    inside.rig.daemon.decide(asked["ask"], False)
    assert await other == b""
    assert (await inside.rig.daemon.event("denied"))["to"] == f"other.test:{inside.port}"


async def test_a_listed_name_leads_to_no_private_address_that_is_not_listed(inside: Inside) -> None:
    """N7: the name is allowed, what it resolves to is judged all the same."""
    inside.rig.daemon.allow(f"localhost:{inside.port}")
    assert await inside.says(await inside.resolve("localhost")) == b""
    assert "address of this machine" in str((await inside.rig.daemon.event("denied"))["reason"])


async def test_an_address_that_was_given_to_no_name_leads_nowhere(inside: Inside) -> None:
    inside.rig.daemon.allow(f"127.0.0.1:{inside.port}")
    assert await inside.says("127.64.0.3") == b""


async def test_a_box_that_ended_is_let_go(inside: Inside) -> None:
    await inside.resolve("localhost")
    inside.rig.daemon.say(ForgetBox("box-1"))
    with pytest.raises(OSError):
        while True:
            await inside.says("127.64.0.1")
