"""The listener over real sockets: the map of PROTOCOL.md 2.2, tokens, and who may come in."""

import asyncio
import hashlib
import json
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from websockets.asyncio.client import connect, unix_connect
from websockets.exceptions import InvalidStatus

from lodger_daemon.clients.app_server import AppServer, AppServerOptions
from lodger_daemon.clients.core.lockout import FIRST_LOCK_S, FREE_FAILURES
from lodger_daemon.clients.errors import ListenRefused, TokenFileInvalid
from lodger_daemon.clients.tokens import CapabilityToken, ensure_token, read_token
from support.patience import LIMIT_S
from support.turn_parts import House
from support.wire_client import WireHouse

TOKEN = "super-secret-capability"
HASH = hashlib.sha256(TOKEN.encode()).hexdigest()


class Listener:
    def __init__(self, wire: WireHouse) -> None:
        self.wire = wire
        self.servers: list[AppServer] = []

    async def tcp(self, options: AppServerOptions | None = None) -> int:
        server = AppServer(self.wire.router, self.wire.house.clock, options)
        self.servers.append(server)
        return await server.start_tcp("127.0.0.1", 0)

    async def unix(self, path: Path) -> AppServer:
        server = AppServer(self.wire.router, self.wire.house.clock)
        self.servers.append(server)
        await server.start_unix(path)
        return server


@pytest.fixture
async def listener(tmp_path: Path) -> AsyncIterator[Listener]:
    house = House(tmp_path)
    wire = WireHouse(house)
    await house.start()
    wire.serve()
    listener = Listener(wire)
    yield listener
    for server in listener.servers:
        await server.aclose()
    await house.close()


async def get(port: int, path: str, **headers: str) -> tuple[str, bytes]:
    """A plain request; returns its status line and body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    sent = {"Host": f"127.0.0.1:{port}", **headers}
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in sent.items())
    writer.write(f"GET {path} HTTP/1.1\r\n{lines}\r\n".encode())
    answer = await asyncio.wait_for(reader.read(), LIMIT_S)
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.split(b"\r\n")[0].decode().removeprefix("HTTP/1.1 "), body


async def upgrade(port: int, path: str = "/ws", host: str | None = None, **headers: str) -> str:
    """`101`, or the status line of the refusal."""
    extra = dict(headers)
    try:
        async with connect(
            f"ws://{host or '127.0.0.1'}:{port}{path}",
            host="127.0.0.1",
            port=port,
            additional_headers=extra,
            proxy=None,
        ):
            return "101"
    except InvalidStatus as refusal:
        return f"{refusal.response.status_code} {refusal.response.reason_phrase}"


async def test_this_user_needs_no_token(listener: Listener) -> None:
    port = await listener.tcp()
    assert await upgrade(port) == "101"
    assert await upgrade(port, "/") == "101"
    assert await upgrade(port, "/other") == "404 Not Found"
    assert await upgrade(port, "/ws?channel=control") == "426 Upgrade Required"
    assert await upgrade(port, Origin="http://localhost:3000") == "403 Forbidden"
    assert await upgrade(port, Origin="https://evil.test", Cookie="a=b") == "403 Forbidden"


async def test_plain_requests(listener: Listener) -> None:
    port = await listener.tcp()
    assert await get(port, "/healthz") == ("200 OK", b"ok\n")
    assert await get(port, "/readyz") == ("200 OK", b"ok\n")
    assert await get(port, "/nope") == ("404 Not Found", b"")
    assert (await get(port, "/healthz", Origin="http://example.com"))[0] == "403 Forbidden"
    status, body = await get(port, "/app-server-info")
    assert status == "200 OK"
    info = json.loads(body)
    assert (info["request_id"], info["protocol_version"]) == ("http-info", 1)
    assert info["capabilities"]["split_channels"] is False


async def test_w9_a_name_rebound_to_loopback_is_refused(listener: Listener) -> None:
    port = await listener.tcp()
    assert await upgrade(port, host="evil.test") == "403 Forbidden"
    assert (await get(port, "/app-server-info", Host=f"evil.test:{port}"))[0] == "403 Forbidden"
    assert await upgrade(port, host="localhost") == "101"


async def test_a_required_token(listener: Listener) -> None:
    port = await listener.tcp(AppServerOptions(CapabilityToken(sha256_hex=HASH)))
    assert await upgrade(port) == "401 missing websocket bearer token"
    assert await upgrade(port, Authorization="Bearer wrong") == "401 invalid websocket bearer token"
    assert await upgrade(port, Authorization="Basic abc") == "401 invalid authorization header"
    assert await upgrade(port, Authorization=f"Bearer {TOKEN}") == "101"
    assert await upgrade(port, Authorization=f"bearer {TOKEN}", Origin="http://localhost:3000") == "101"
    assert (await get(port, "/app-server-info")) == (
        "401 missing websocket bearer token",
        b'{"error":"missing websocket bearer token"}',
    )
    assert (await get(port, "/app-server-info", Authorization=f"Bearer {TOKEN}"))[0] == "200 OK"
    assert await get(port, "/healthz") == ("200 OK", b"ok\n")


async def test_w2_w5_a_token_for_those_nothing_else_vouches_for(listener: Listener) -> None:
    port = await listener.tcp(AppServerOptions(CapabilityToken(sha256_hex=HASH, required=False)))
    assert await upgrade(port) == "101"
    assert await upgrade(port, Origin="http://localhost:3000") == "403 Forbidden"
    assert await upgrade(port, Origin="http://localhost:3000", Authorization="Bearer no") == (
        "401 invalid websocket bearer token"
    )
    assert await upgrade(port, Origin="http://localhost:3000", Authorization=f"Bearer {TOKEN}") == "101"
    assert await upgrade(port, Authorization="Bearer garbage") == "401 invalid websocket bearer token"


async def test_w3_w4_guessing_is_locked_out(listener: Listener) -> None:
    alarms: list[tuple[str, float]] = []
    token = CapabilityToken(sha256_hex=HASH)
    port = await listener.tcp(AppServerOptions(token, on_lockout=lambda *alarm: alarms.append(alarm)))
    for number in range(FREE_FAILURES):
        extra = {"X_Device_Token": "d"} if number % 2 else {}
        answer, _ = await get(port, "/app-server-info", Authorization=f"Bearer {number}", **extra)
        assert answer.startswith("401")
    assert alarms == [(f"uid {os.geteuid()}", FIRST_LOCK_S)]
    for _ in range(3):
        answer, _ = await get(port, "/app-server-info", Authorization="Bearer another")
        assert answer.startswith("429")
        # A right one is no guess: whoever holds it goes on beside the guesser.
        assert await upgrade(port, Authorization=f"Bearer {TOKEN}") == "101"
    listener.wire.house.clock.advance(31)
    answer, _ = await get(port, "/app-server-info", Authorization="Bearer another")
    assert answer.startswith("401")


async def test_w7_a_rotated_token_counts_at_once(listener: Listener, tmp_path: Path) -> None:
    """For new sockets."""
    file = tmp_path / "token"
    old = ensure_token(file)
    assert ensure_token(file) == old == read_token(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    port = await listener.tcp(AppServerOptions(CapabilityToken(file=file)))
    assert await upgrade(port, Authorization=f"Bearer {old}") == "101"
    file.write_text("new-token\n")
    assert await upgrade(port, Authorization=f"Bearer {old}") == "401 invalid websocket bearer token"
    assert await upgrade(port, Authorization="Bearer new-token") == "101"


async def test_token_files_others_can_read_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("t")
    file.chmod(0o644)
    with pytest.raises(TokenFileInvalid, match="chmod 600"):
        read_token(file)
    with pytest.raises(TokenFileInvalid):
        read_token(tmp_path / "absent")


async def test_other_machines_only_with_a_token(listener: Listener) -> None:
    server = AppServer(listener.wire.router, listener.wire.house.clock)
    with pytest.raises(ListenRefused, match="--ws-auth"):
        await server.start_tcp("0.0.0.0", 0)


async def test_the_unix_socket_is_private_and_serves_frames(listener: Listener, tmp_path: Path) -> None:
    path = tmp_path / "state" / "daemon.sock"
    await listener.unix(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    async with unix_connect(str(path), uri="ws://localhost/ws") as client:
        await client.send(json.dumps({"type": "app_server_info", "request_id": "1"}))
        answer = await asyncio.wait_for(client.recv(), LIMIT_S)
        assert isinstance(answer, str)
        assert json.loads(answer)["request_id"] == "1"
        await client.send(b"\xff\x00 not json")
        await client.send(json.dumps({"type": "app_server_info", "request_id": "2"}))
        assert json.loads(await asyncio.wait_for(client.recv(), LIMIT_S))["request_id"] == "2"


async def test_a_stale_socket_is_replaced_and_a_living_one_is_not(listener: Listener, tmp_path: Path) -> None:
    path = tmp_path / "daemon.sock"
    first = await listener.unix(path)
    with pytest.raises(ListenRefused, match="another daemon"):
        await listener.unix(path)
    await first.aclose()
    assert not path.exists()
    import socket

    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(path))
    await listener.unix(path)
    async with unix_connect(str(path), uri="ws://localhost/ws"):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
async def test_w10_another_user_is_refused_everywhere(listener: Listener) -> None:
    import sys
    import tempfile

    port = await listener.tcp()
    program = (
        "import encodings.idna, os, socket, sys\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "s = socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5)\n"
        "s.sendall(b'GET /app-server-info HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n')\n"
        "print(s.recv(200).split(b'\\r\\n')[0].decode())\n"
        "u = socket.socket(socket.AF_UNIX); u.settimeout(5)\n"
        "u.connect(sys.argv[2])\n"
        "u.sendall(b'GET /healthz HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n')\n"
        "print(u.recv(200).split(b'\\r\\n')[0].decode())\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "daemon.sock"
        await listener.unix(path)
        # Even with its modes opened, the kernel's word about the peer holds.
        Path(folder).chmod(0o755)
        path.chmod(0o666)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-c", program, str(port), str(path), stdout=asyncio.subprocess.PIPE
        )
        output, _ = await asyncio.wait_for(process.communicate(), 20)
    assert output.decode().splitlines() == ["HTTP/1.1 401 missing websocket bearer token", "HTTP/1.1 403 Forbidden"]
