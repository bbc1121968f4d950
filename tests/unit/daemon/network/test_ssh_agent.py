"""What of a real ssh agent is lent: keys and signatures, to one user; nothing that changes the agent."""

import asyncio
import os
import socket
import struct
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from lodger_daemon.network.core.ssh_agent_messages import MESSAGE_LIMIT_BYTES, may_pass
from lodger_daemon.network.ssh_agent import CONNECTIONS, AgentLook, LentAgent
from lodger_sandbox.contract import BoxUser
from support.ssh_agent import keys_in, ssh_agent

FAILURE, SUCCESS, KEYS = 5, 6, 12
LIST_KEYS, REMOVE_ALL, LOCK, EXTENSION = 11, 19, 22, 27
LIMIT_S = 20.0


class Lent:
    def __init__(self, agent: Path, folder: Path) -> None:
        self.agent = agent
        self.socket = folder / "agent"

    async def says(self, message: bytes, place: Path | None = None) -> int:
        """The kind of the answer; -1 when there is none."""
        reader, writer = await asyncio.open_unix_connection(place or self.socket)
        try:
            async with asyncio.timeout(LIMIT_S):
                writer.write(struct.pack("!I", len(message)) + message)
                size = struct.unpack("!I", await reader.readexactly(4))[0]
                return (await reader.readexactly(size))[0]
        except (asyncio.IncompleteReadError, ConnectionError):
            return -1
        finally:
            writer.close()


@pytest.fixture
async def lent(tmp_path: Path) -> AsyncIterator[Lent]:
    key = tmp_path / "key"
    subprocess.run(("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)), check=True)  # noqa: ASYNC221
    with ssh_agent(tmp_path / "real", key) as place:
        made = LentAgent(str(place), BoxUser(os.getuid(), os.getgid(), "me"))
        (tmp_path / "lent").mkdir()
        await made.start(tmp_path / "lent")
        yield Lent(place, tmp_path / "lent")
        await made.aclose()


async def test_keys_are_listed_and_nothing_is_changed(lent: Lent) -> None:
    assert await lent.says(bytes((LIST_KEYS,))) == KEYS
    for kind in set(range(256)) - {LIST_KEYS, 13, EXTENSION}:
        assert await lent.says(bytes((kind,)) + bytes(16)) == FAILURE, kind
    assert "ED25519" in keys_in(lent.agent)
    # The control: the agent itself obeys.
    assert await lent.says(bytes((REMOVE_ALL,)), lent.agent) == SUCCESS
    assert "ED25519" not in keys_in(lent.agent)


async def test_a_message_that_is_too_long_or_broken_off_ends_the_connection(lent: Lent) -> None:
    assert await lent.says(bytes((LIST_KEYS,)) + bytes(MESSAGE_LIMIT_BYTES)) == -1
    assert await lent.says(b"") == FAILURE
    reader, writer = await asyncio.open_unix_connection(lent.socket)
    writer.write(struct.pack("!I", 10) + b"\x0b")
    writer.write_eof()
    assert await reader.read() == b""
    writer.close()
    assert await lent.says(bytes((LIST_KEYS,))) == KEYS


async def test_many_connections_leave_room_for_later_ones(lent: Lent) -> None:
    async with AsyncExitStack() as opened:
        held = []
        for _ in range(CONNECTIONS):
            reader, writer = await asyncio.open_unix_connection(lent.socket)
            opened.callback(writer.close)
            writer.write(struct.pack("!I", 1) + bytes((LIST_KEYS,)))
            held.append(await reader.readexactly(5))
        assert await lent.says(bytes((LIST_KEYS,))) == -1
    async with asyncio.timeout(LIMIT_S):
        while await lent.says(bytes((LIST_KEYS,))) != KEYS:
            pass


async def test_another_user_gets_nothing(tmp_path: Path, lent: Lent) -> None:
    if os.getuid() != 0:
        pytest.skip("gives a socket away")
    for_others = LentAgent(str(lent.agent), BoxUser(54321, 54321, "other"))
    (tmp_path / "others").mkdir()
    await for_others.start(tmp_path / "others")
    status = (tmp_path / "others/agent").stat()
    assert (status.st_uid, status.st_mode & 0o777) == (54321, 0o600)
    # Root may connect to any socket; it is not who this one is for.
    assert await lent.says(bytes((LIST_KEYS,)), tmp_path / "others/agent") == -1
    await for_others.aclose()


def test_of_extensions_only_the_one_that_says_where_to() -> None:
    def named(name: bytes) -> bytes:
        return struct.pack("!BI", EXTENSION, len(name)) + name

    assert may_pass(named(b"session-bind@openssh.com") + b"more")
    for name in (b"query", b"session-bind@openssh.com.test", b"session-bind", b""):
        assert not may_pass(named(name)), name
    assert not may_pass(struct.pack("!BI", EXTENSION, 5) + b"session-bind@openssh.com")
    assert not may_pass(bytes((LOCK,)))


async def test_the_status_tells_an_agent_that_is_not_there_from_one_that_is(lent: Lent, tmp_path: Path) -> None:
    async def state(agent: Path | str, *, asked: bool = True) -> object:
        section = await AgentLook(str(agent), asked=asked).section()
        assert isinstance(section, dict)
        return section["state"]

    assert await state(lent.agent) == "there"
    assert await state("") == "not_named"
    assert await state(tmp_path / "gone") == "silent"
    dead = tmp_path / "dead"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(dead))
    assert await state(dead) == "silent", "its file outlives an agent"
    assert await state(dead, asked=False) == "not_asked"
