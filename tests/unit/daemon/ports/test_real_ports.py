"""What listens in a real box is offered, and once allowed reached from outside: HTTP, WebSocket, big streams, ends."""

import asyncio
import contextlib
import socket
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from websockets.asyncio.client import connect

from lodger_daemon.ports.core.offers import ASKED_LIMIT, KNOWN_LIMIT, TOGETHER_LIMIT
from lodger_daemon.ports.forward import CONNECTIONS, IDLE_LIMIT_S, SPARE_AFTER_S
from lodger_daemon.ports.ports import GRANTS_FILE, NotOpened
from lodger_tools.box.contract import BoxKey
from support.hub_rig import until
from support.patience import LIMIT_S
from support.port_room import PortRoom, port_room, server_port
from support.real_boxes import workspace_for_tests

PORT = server_port(beside=1)
PYTHON_SERVER = f"echo hello >index.html; exec python3 -m http.server {PORT}"
"""On all addresses."""

NODE_SERVER = """
const crypto = require("crypto"), http = require("http");
const server = http.createServer((request, response) => response.end("page for " + request.headers.host));
server.on("upgrade", (request, socket) => {
  const accept = crypto.createHash("sha1")
    .update(request.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest("base64");
  socket.write("HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n" +
    "Sec-WebSocket-Accept: " + accept + "\\r\\n\\r\\n");
  socket.write(Buffer.concat([Buffer.from([0x81, 6]), Buffer.from("reload")]));
  socket.on("data", () => socket.end());
});
server.listen(PORT, "::1");
"""

ECHO = f"""
import socket, threading
def serve(one):
    whole = b""
    while data := one.recv(65536):
        whole += data
    one.sendall(b"got %d" % len(whole))
    one.close()
listening = socket.create_server(("127.0.0.1", {PORT}), backlog=64)
while True:
    one, _ = listening.accept()
    threading.Thread(target=serve, args=(one,), daemon=True).start()
"""
"""Answers once its client has ended its sending."""


@pytest.fixture
def workspace() -> Iterator[Path]:
    with workspace_for_tests() as made:
        yield made


@pytest.fixture
async def room(tmp_path: Path, workspace: Path) -> AsyncIterator[PortRoom]:
    async with port_room(tmp_path, workspace) as made:
        yield made


async def fetched(port: int) -> str:
    def fetch() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=LIMIT_S) as answer:
            return str(answer.read().decode())

    return await asyncio.to_thread(fetch)


def is_free(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) != 0


async def test_a_server_in_the_box_is_offered_and_then_reached(room: PortRoom) -> None:
    await room.serve(PYTHON_SERVER, PORT)
    await room.look()
    await until(lambda: bool(room.person.asked), "a person is asked")
    assert room.person.asked == [(PORT,)]
    assert room.states() == {PORT: "offered"}
    # Nothing is open before somebody said so.
    assert is_free(PORT)
    room.person.answers[0].set_result(frozenset({PORT}))
    # The same number, since what the agent tells the person names it.
    assert await room.opened(PORT) == PORT
    assert await fetched(PORT) == "hello\n"
    assert room.person.told == [f"Port {PORT} of the box is open at http://127.0.0.1:{PORT}"]
    assert room.audit == [("port.opened", str(PORT), "a person")]
    await room.look()
    assert len(room.person.asked) == 1


async def test_a_node_server_on_ipv6_alone_with_a_web_socket(room: PortRoom, workspace: Path) -> None:
    (workspace / "server.js").write_text(NODE_SERVER.replace("PORT", str(PORT)))
    await room.serve("exec node server.js", PORT)
    local = await room.allowed(PORT)
    assert await fetched(local) == f"page for 127.0.0.1:{local}"
    async with connect(f"ws://127.0.0.1:{local}/hmr", proxy=None) as page:
        assert await page.recv() == "reload"


async def test_no_is_no_for_as_long_as_the_box_lives(room: PortRoom) -> None:
    await room.serve(PYTHON_SERVER, PORT)
    await room.look()
    await until(lambda: bool(room.person.asked), "a person is asked")
    room.person.answers[0].set_result(frozenset())
    await until(lambda: room.states() == {PORT: "denied"}, "it is settled")
    await room.look()
    assert is_free(PORT) and len(room.person.asked) == 1
    # What they said no to they may open themselves.
    (one,) = room.ports.listed()
    assert await room.ports.open(one.box, PORT) == PORT
    assert await fetched(PORT) == "hello\n"


async def test_where_nobody_can_be_asked_they_are_told_once(room: PortRoom) -> None:
    room.person.there = False
    await room.serve(PYTHON_SERVER, PORT)
    await room.look()
    await room.look()
    hint = f"Port {PORT} listens in the box; `lodger ports open {PORT}` opens it here."
    assert room.person.told == [hint] and room.person.asked == []
    room.person.there = True
    await room.look()
    await until(lambda: bool(room.person.asked), "a person is asked")
    room.person.answers[0].set_result(None)
    await room.look()
    assert room.person.told == [hint] and is_free(PORT)


async def test_a_taken_port_here_gives_another_one(room: PortRoom) -> None:
    with socket.create_server(("127.0.0.1", PORT)):
        await room.serve(PYTHON_SERVER, PORT)
        local = await room.allowed(PORT)
        assert local != PORT
        assert await fetched(local) == "hello\n"


async def test_it_makes_way_for_a_provider_that_is_connected_there(room: PortRoom) -> None:
    await room.serve(PYTHON_SERVER, PORT)
    assert await room.allowed(PORT) == PORT
    leaving = asyncio.ensure_future(room.ports.leave((f"http://localhost:{PORT}/v1",)))
    await asyncio.sleep(0)
    assert is_free(PORT), "before anything else happens"
    await leaving
    moved = room.ports.listed()[0].local_port
    assert moved is not None and moved != PORT
    assert await fetched(moved) == "hello\n"
    assert room.audit[1:] == [
        ("port.closed", str(PORT), "a provider is expected at its place"),
        ("port.opened", str(PORT), "a person"),
    ]
    await room.ports.close(room.ports.listed()[0].box, PORT)
    assert await room.ports.open(room.ports.listed()[0].box, PORT) != PORT, "nor is it had again"


@pytest.mark.parametrize("steps", range(6))
async def test_a_port_that_is_being_opened_as_a_provider_comes_is_not(room: PortRoom, steps: int) -> None:
    """Whatever point the opening has come to."""
    await room.serve(PYTHON_SERVER, PORT)
    await room.look()
    opening = asyncio.ensure_future(room.ports.open(room.ports.listed()[0].box, PORT))
    for _ in range(steps):
        await asyncio.sleep(0)
    await room.ports.leave((f"http://127.0.0.1:{PORT}/v1",))
    await asyncio.gather(opening, return_exceptions=True)
    assert is_free(PORT)


async def test_it_ends_with_the_box(room: PortRoom) -> None:
    await room.serve(PYTHON_SERVER, PORT)
    local = await room.allowed(PORT)
    with socket.create_connection(("127.0.0.1", local)) as inside:
        inside.setblocking(False)
        await until(lambda: room.ports.listed()[0].connections == 1, "it is connected")
        await room.manager.end(room.key)
        assert is_free(local) and room.ports.listed() == ()
        assert await asyncio.wait_for(_until_cut(inside), LIMIT_S) == b""
    assert room.audit[-1] == ("port.closed", str(PORT), "the box ended")


async def _until_cut(one: socket.socket) -> bytes:
    with contextlib.suppress(ConnectionResetError):
        return await asyncio.get_running_loop().sock_recv(one, 100)
    return b""


async def test_a_person_closes_it_and_who_was_in_is_cut_off(room: PortRoom) -> None:
    await room.serve(PYTHON_SERVER, PORT)
    local = await room.allowed(PORT)
    with socket.create_connection(("127.0.0.1", local)) as inside:
        inside.setblocking(False)
        await until(lambda: room.ports.listed()[0].connections == 1, "it is connected")
        await room.ports.close(room.ports.listed()[0].box, PORT)
        assert is_free(local)
        assert await asyncio.wait_for(_until_cut(inside), LIMIT_S) == b""
    await room.look()
    assert room.states() == {PORT: "denied"} and len(room.person.asked) == 1


async def test_a_later_daemon_opens_what_was_allowed_and_remembers_what_was_not(
    tmp_path: Path, workspace: Path
) -> None:
    async with port_room(tmp_path, workspace) as first:
        await first.serve(PYTHON_SERVER, PORT)
        await first.serve(f"exec python3 -m http.server {PORT + 1}", PORT + 1)
        local = await first.allowed(PORT)
        await until(lambda: ("port.denied", str(PORT + 1), "a person") in first.audit, "the other is written down")
        await first.let_go()
        assert is_free(local)
        async with port_room(tmp_path, workspace) as second:
            await second.manager.start()
            await second.look()
            assert await second.opened(PORT) == local
            assert await fetched(local) == "hello\n"
            assert second.states() == {PORT: "open", PORT + 1: "denied"}
            assert second.person.asked == []


async def test_a_record_that_cannot_be_read_opens_nothing_and_the_person_is_asked_again(
    tmp_path: Path, workspace: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with port_room(tmp_path, workspace) as first:
        await first.serve(PYTHON_SERVER, PORT)
        local = await first.allowed(PORT)
        await first.let_go()
        [kept] = (tmp_path / "boxes").glob(f"*/{GRANTS_FILE}")
        kept.write_text(kept.read_text().replace(f"[[{PORT}", f"[[true, {PORT}], [{PORT}"))
        async with port_room(tmp_path, workspace) as second:
            await second.manager.start()
            await second.look()
            await until(lambda: second.person.asked == [(PORT,)], "the person is asked again")
            assert second.states() == {PORT: "offered"} and is_free(local)
    assert "could not be read: True is no port" in caplog.text


async def test_a_rule_opens_without_asking_until_the_person_closes(tmp_path: Path, workspace: Path) -> None:
    async with port_room(tmp_path, workspace) as room:
        room.rules.always = {(str(workspace), PORT)}
        await room.serve(PYTHON_SERVER, PORT)
        await room.look()
        assert await fetched(await room.opened(PORT)) == "hello\n"
        assert room.person.asked == [] and room.audit == [("port.opened", str(PORT), "a rule")]
        await room.let_go()
        async with port_room(tmp_path, workspace) as without:
            # The rule is gone, so the port is asked about.
            await without.manager.start()
            await without.look()
            assert without.states() == {PORT: "offered"}
            await without.let_go()
        async with port_room(tmp_path, workspace) as again:
            again.rules.always = {(str(workspace), PORT)}
            await again.manager.start()
            await again.look()
            await again.opened(PORT)
            await again.ports.close(again.ports.listed()[0].box, PORT)
            await again.look()
            assert again.states() == {PORT: "denied"} and is_free(PORT)


async def test_another_box_does_not_reach_it(room: PortRoom, tmp_path: Path) -> None:
    await room.serve(PYTHON_SERVER, PORT)
    local = await room.allowed(PORT)
    with workspace_for_tests() as elsewhere:
        other = BoxKey("agent-other", str(elsewhere))
        reaching = f"(exec 3<>/dev/tcp/127.0.0.1/{local})"
        # The control: from the box itself there is something at that port.
        assert (await room.run(reaching)).exit_code == 0
        assert (await room.run(reaching.replace("127.0.0.1", "localhost"), other)).exit_code != 0


async def test_a_port_that_the_system_chose_is_listed_and_not_asked_about(room: PortRoom) -> None:
    await room.serve("exec python3 -m http.server 40123", 40123)
    await room.look()
    assert room.states() == {40123: "seen"} and room.person.asked == []
    local = await room.ports.open(room.ports.listed()[0].box, 40123)
    assert "Directory listing" in await fetched(local)


async def test_a_box_that_listens_everywhere_is_asked_about_within_limits(room: PortRoom, workspace: Path) -> None:
    (workspace / "many.py").write_text(
        "import resource, socket, time\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)\n"
        "kept = []\n"
        "try:\n"
        "    for port in range(2000, 12000):\n"
        "        kept.append(socket.create_server(('127.0.0.1', port)))\n"
        "except OSError as error:\n"
        "    print(error, flush=True)\n"
        "socket.create_server(('127.0.0.1', 1999))\n"
        "print(len(kept), flush=True)\n"
        "time.sleep(600)\n"
    )
    await room.serve("exec python3 many.py")
    made = await room.run(
        "for i in $(seq 1000); do grep -qx '[0-9]*' server.log && break; sleep 0.02; done; cat server.log"
    )
    assert int(made.text.split()[-1]) > 500, made.text
    await room.look()
    for count in range(1, ASKED_LIMIT // TOGETHER_LIMIT + 1):
        await until(lambda count=count: len(room.person.asked) == count, "a person is asked")
        room.person.answers[-1].set_result(frozenset())
        await until(lambda count=count: list(room.states().values()).count("denied") == count * TOGETHER_LIMIT, "told")
    await room.look()
    asked = [port for question in room.person.asked for port in question]
    assert len(set(asked)) == len(asked) == ASKED_LIMIT
    assert len(room.ports.listed()) == KNOWN_LIMIT


async def test_a_box_that_listens_elsewhere_each_time_is_told_of_within_limits(room: PortRoom, workspace: Path) -> None:
    """Where nobody can be asked; each line would stay in the conversation."""
    room.person.there = False
    (workspace / "moving.py").write_text(
        "import os, socket, time\n"
        "for round in range(2 * LIMIT // TOGETHER):\n"
        "    kept = [socket.create_server(('127.0.0.1', PORT + TOGETHER * round + i)) for i in range(TOGETHER)]\n"
        "    open(f'listens-{round}', 'w').close()\n"
        "    while not os.path.exists(f'go-on-{round}'):\n"
        "        time.sleep(0.01)\n"
        "    [one.close() for one in kept]\n".replace("TOGETHER", str(TOGETHER_LIMIT))
        .replace("LIMIT", str(ASKED_LIMIT))
        .replace("PORT", "2000")
    )
    await room.run("python3 moving.py >/dev/null 2>&1 &")
    for count in range(2 * ASKED_LIMIT // TOGETHER_LIMIT):
        await until(lambda count=count: (workspace / f"listens-{count}").exists(), "it listens")
        await room.look()
        (workspace / f"go-on-{count}").touch()
    assert len(room.person.told) == ASKED_LIMIT and room.person.asked == []


async def test_a_half_closed_connection_gets_its_answer(room: PortRoom, workspace: Path) -> None:
    (workspace / "echo.py").write_text(ECHO)
    await room.serve("exec python3 echo.py", PORT)
    local = await room.allowed(PORT)
    reader, writer = await asyncio.open_connection("127.0.0.1", local)
    writer.write(b"x" * 3_000_000)
    await writer.drain()
    writer.write_eof()
    assert await asyncio.wait_for(reader.read(), 20) == b"got 3000000"
    writer.close()
    await until(lambda: room.ports.listed()[0].connections == 0, "nothing is left")


def sent(workspace: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return int((workspace / "sent").read_text() or 0)
    return 0


async def test_who_does_not_read_holds_up_who_writes(room: PortRoom, workspace: Path) -> None:
    """A big download waits in the box, not in the daemon."""
    (workspace / "flood.py").write_text(
        "import socket\n"
        f"listening = socket.create_server(('127.0.0.1', {PORT}))\n"
        "while True:\n"
        "    one, _ = listening.accept()\n"
        "    try:\n"
        "        for count in range(300):\n"
        "            one.sendall(b'x' * 1000000)\n"
        "            open('sent', 'w').write(str(count + 1))\n"
        "    except OSError:\n"
        "        pass\n"
        "    one.close()\n"
    )
    await room.serve("exec python3 flood.py", PORT)
    local = await room.allowed(PORT)
    (workspace / "sent").unlink(missing_ok=True)
    reader, writer = await asyncio.open_connection("127.0.0.1", local, limit=2**16)
    await reader.readexactly(1000)
    now, before = sent(workspace), -1
    while now == 0 or now != before:  # as long as something still moves
        await asyncio.sleep(0.5)
        now, before = sent(workspace), now
    assert now < 30
    got = 1000
    while data := await reader.read(2**20):
        got += len(data)
    assert got == 300_000_000
    writer.close()


async def test_connections_have_a_limit_and_silent_ones_make_room(room: PortRoom, workspace: Path) -> None:
    (workspace / "echo.py").write_text(ECHO)
    await room.serve("exec python3 echo.py", PORT)
    local = await room.allowed(PORT)
    silent = [await asyncio.open_connection("127.0.0.1", local) for _ in range(CONNECTIONS)]
    await until(lambda: room.ports.listed()[0].connections == CONNECTIONS, "all are in")
    reader, writer = await asyncio.open_connection("127.0.0.1", local)
    with contextlib.suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), LIMIT_S) == b""
    writer.close()
    room.clock.now += SPARE_AFTER_S
    reader, writer = await asyncio.open_connection("127.0.0.1", local)
    writer.write_eof()
    assert await asyncio.wait_for(reader.read(), LIMIT_S) == b"got 0"
    room.clock.now += IDLE_LIMIT_S
    await room.look()
    await until(lambda: room.ports.listed()[0].connections == 0, "the silent ones are cut off")
    for _, one in [*silent, (reader, writer)]:
        one.close()


async def test_all_ports_together_have_a_limit_too(
    room: PortRoom, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else whoever connects to many of them takes the daemon's last descriptor."""
    monkeypatch.setattr("lodger_daemon.ports.forward.ALL_CONNECTIONS", 6)
    (workspace / "echo.py").write_text(ECHO)
    await room.serve("exec python3 echo.py", PORT)
    await room.serve(f"exec python3 -m http.server {PORT + 1}", PORT + 1)
    here = await room.allowed(PORT)
    there = await room.ports.open(room.ports.listed()[0].box, PORT + 1)

    def connected() -> int:
        return sum(one.connections for one in room.ports.listed())

    held = [await asyncio.open_connection("127.0.0.1", port) for port in (here, there) for _ in range(3)]
    await until(lambda: connected() == 6, "all are in")
    for port in (here, there):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), LIMIT_S) == b""
        writer.close()
    assert connected() == 6
    # Who leaves makes room, at whichever port.
    held.pop()[1].close()
    await until(lambda: connected() == 5, "one has left")
    reader, writer = await asyncio.open_connection("127.0.0.1", here)
    writer.write_eof()
    assert await asyncio.wait_for(reader.read(), LIMIT_S) == b"got 0"
    for _, one in [*held, (reader, writer)]:
        one.close()


async def test_a_server_that_is_gone_closes_who_connects(room: PortRoom) -> None:
    await room.serve(PYTHON_SERVER, PORT)
    local = await room.allowed(PORT)
    await room.stop_server()
    reader, writer = await asyncio.open_connection("127.0.0.1", local)
    with contextlib.suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), LIMIT_S) == b""
    writer.close()
    # It comes back, as development servers do.
    await room.serve(PYTHON_SERVER, PORT)
    assert await fetched(local) == "hello\n"


async def test_ports_of_a_box_s_own_network_alone_are_opened(room: PortRoom) -> None:
    await room.run("true")
    with socket.create_server(("127.0.0.1", PORT)):
        await room.look()
        assert room.states() == {}
    with pytest.raises(NotOpened, match="has ended"):
        await room.ports.open("nobody", PORT)
