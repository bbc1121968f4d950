"""R13: whatever a server answers, the uplink tries again; and what it asks of a Letta control plane."""

import asyncio
import contextlib
import dataclasses
import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as serve_sockets

from lodger_daemon.uplink.core.status import UplinkState
from lodger_daemon.uplink.device_id import load_device_id
from lodger_daemon.uplink.registration import Identity, register
from lodger_daemon.uplink.timing import UplinkTiming
from support.hub_rig import running_uplink, until

FAST = UplinkTiming(probe_interval_s=0.1, wake_check_s=0.01, time_scale=0.001)
IMPATIENT = dataclasses.replace(FAST, ready_limit_s=0.2)


@contextlib.asynccontextmanager
async def answering(make: Callable[[int], bytes]) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that answers the nth request with `make(n)` and closes."""
    requests: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            found = re.search(rb"(?i)content-length: (\d+)", head)
            body = await reader.readexactly(int(found[1])) if found else b""
            requests.append(head + body)
            writer.write(make(len(requests)))
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", requests


def http(status: int, body: bytes = b"", headers: str = "") -> bytes:
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


PORTAL = b"<html>please log in</html>"


@pytest.mark.parametrize(
    "answer",
    [
        *(http(status) for status in (400, 401, 403, 404, 410, 429, 500, 502, 503, 204, 301)),
        http(429, b"", "Retry-After: 2\r\n"),
        http(410, b"", "Retry-After: nonsense\r\n"),
        http(200, PORTAL, "Content-Type: text/html\r\n"),
        http(302, PORTAL, "Location: http://portal.example/\r\n"),
        http(200, b"{}"),
        http(200, b'{"connectionId":"x","wsUrl":"ws://elsewhere.example/"}'),
        http(200, b'{"connectionId":"x","wsUrl":"nonsense"}'),
        http(200, b"[" * 60000),
        http(200, b"x" * 200_000),
        b"",
        b"\x16\x03\x01garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\nshort",
    ],
    ids=lambda value: repr(value[:40]),
)
async def test_r13_no_answer_ends_the_trying(answer: bytes) -> None:
    async with answering(lambda _: answer) as (url, requests), running_uplink(url, "t", timing=FAST) as rig:
        await until(lambda: len(requests) >= 3, f"three tries; {rig.uplink.status()}")
        assert rig.uplink.status().reason
        assert rig.uplink.status().connection_id is None


async def test_a_try_that_hangs_does_not_hold_up_the_end() -> None:
    async def handle(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with running_uplink(url, "t", timing=FAST) as rig:
            await until(lambda: rig.uplink.status().state is UplinkState.REGISTERING, "registering")
            began = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - began < 2.0


async def test_chunked_answers_of_servers_that_stay_open_are_read() -> None:
    body = json.dumps({"connectionId": "c7", "wsUrl": "ws://127.0.0.1:1/"}).encode()
    answer = b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for byte in answer:
            writer.write(bytes([byte]))
            await asyncio.sleep(0)
        await reader.read()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        registered = await register(url, "t", Identity("d", "n", {}), None, 0.0)
        lease = registered.lease
        assert registered.hub_wall is None
        assert (lease.connection_id, lease.enveloped, lease.split) == ("c7", False, False)


async def test_r13_a_refused_upgrade_leads_to_a_new_registration() -> None:
    def make(number: int) -> bytes:
        if number % 2 == 0:
            return http(404)
        return http(200, json.dumps({"connectionId": "c", "wsUrl": where[0]}).encode())

    where: list[str] = []
    async with answering(make) as (url, requests):
        where.append(f"{url.replace('http', 'ws')}/socket?ticket=1")
        async with running_uplink(url, "t", timing=FAST):
            await until(lambda: len(requests) >= 5, "tries")
        kinds = [request.split(b" ")[0] for request in requests[:5]]
        assert kinds == [b"POST", b"GET", b"POST", b"GET", b"POST"]


async def test_the_registration_is_as_the_protocol_says() -> None:
    async with answering(lambda _: http(500)) as (url, requests), running_uplink(url, "the-token", timing=FAST):
        await until(lambda: len(requests) >= 1, "a request")
    head, _, body = requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/environments/register HTTP/1.1\r\n")
    assert b"authorization: bearer the-token" in head.lower()
    assert json.loads(body) == {
        "deviceId": "device-1",
        "listenerInstanceId": "server-dfb2ed56d225cdd8",
        "connectionName": "test machine",
        "metadata": {
            "environmentMessageProtocol": "v2-input",
            "supportsPairedListenerGenerations": True,
            "lettaCodeVersion": "0.1",
            "relay_envelope": True,
        },
    }


@contextlib.asynccontextmanager
async def control_plane(
    offer: dict[str, Any], handle: Callable[[ServerConnection, dict[str, str]], Any]
) -> AsyncIterator[tuple[str, list[dict[str, str]]]]:
    """A control plane of the peer's kind: bare frames, perhaps on two sockets."""
    dials: list[dict[str, str]] = []

    async def on_socket(socket: ServerConnection) -> None:
        assert socket.request is not None
        query = {name: values[0] for name, values in parse_qs(urlsplit(socket.request.path).query).items()}
        dials.append(query)
        await handle(socket, query)

    async with serve_sockets(on_socket, "127.0.0.1", 0) as sockets:
        port = next(iter(sockets.sockets)).getsockname()[1]
        body = json.dumps({"connectionId": "c1", "wsUrl": f"ws://127.0.0.1:{port}/ws?token=opaque", **offer}).encode()
        async with answering(lambda _: http(200, body)) as (url, _):
            yield url, dials


async def test_bare_frames_go_to_one_peer() -> None:
    got: list[str | bytes] = []

    async def handle(socket: ServerConnection, _: dict[str, str]) -> None:
        await socket.send('{"type":"app_server_info","request_id":"1"}')
        async for message in socket:
            got.append(message)
            if message == '{"type":"ping"}':
                await socket.send('{"type":"pong"}')

    async with control_plane({}, handle) as (url, dials), running_uplink(url, "t", timing=FAST) as rig:
        await until(lambda: len(got) >= 3, "frames")
        assert got[0] == '{"type": "app_server_info", "request_id": "1", "answer": 0}'
        assert set(got[1:]) == {'{"type":"ping"}'}
        assert [peer.label for peer in rig.router.peers] == ["relay"]
    assert dials[0] == {"token": "opaque", "deviceId": "device-1", "connectionName": "test machine"}


PAIRED = {"supportsSplitStatusChannels": True, "supportsPairedListenerGenerations": True}


async def acknowledge(socket: ServerConnection, query: dict[str, str]) -> None:
    generation, attempt = query["connectionGeneration"], int(query["connectionAttempt"])
    ready = {"type": "listener_ready", "connection_generation": generation, "connection_attempt": attempt}
    await socket.send(json.dumps(ready))


async def test_a_pair_is_acknowledged_and_each_frame_takes_its_socket() -> None:
    got: dict[str, list[Any]] = {"control": [], "stream": []}

    async def handle(socket: ServerConnection, query: dict[str, str]) -> None:
        if query["channel"] == "control":
            await socket.send('{"type":"early"}')
        await acknowledge(socket, query)
        if query["channel"] == "control":
            await socket.send('{"type":"stream_delta"}')
        async for message in socket:
            got[query["channel"]].append(json.loads(message)["type"])

    async with control_plane(PAIRED, handle) as (url, dials), running_uplink(url, "t", timing=FAST) as rig:
        await until(lambda: "stream_delta" in got["stream"] and "early" in got["control"], "both")
        assert [json.loads(frame)["type"] for frame in rig.router.peers[0].got[:2]] == ["early", "stream_delta"]
    first, second = dials[:2]
    assert first["connectionGeneration"] == second["connectionGeneration"]
    assert [first["channel"], second["channel"]] == ["control", "stream"]
    assert [first["connectionAttempt"], second["connectionAttempt"]] == ["1", "1"]


@pytest.mark.parametrize("wrong", [True, False], ids=["of another", "none"])
async def test_a_pair_that_is_not_acknowledged_is_dialled_again(wrong: bool) -> None:
    async def handle(socket: ServerConnection, query: dict[str, str]) -> None:
        if wrong:
            await acknowledge(socket, {**query, "connectionGeneration": "other"})
        await socket.wait_closed()

    async with control_plane(PAIRED, handle) as (url, dials), running_uplink(url, "t", timing=IMPATIENT) as rig:
        await until(lambda: len(dials) >= 3, "dials")
        assert rig.router.peers == []
    assert [dial["channel"] for dial in dials[:3]] == ["control"] * 3
    assert [dial["connectionAttempt"] for dial in dials[:3]] == ["1", "2", "3"]
    assert len({dial["connectionGeneration"] for dial in dials[:3]}) == 3


@pytest.mark.parametrize("close", [(1000, "bye"), (1001, ""), (1011, ""), (4001, ""), (4401, "no")])
async def test_any_other_close_is_followed_by_a_dial_with_rising_waits(close: tuple[int, str]) -> None:
    async def handle(socket: ServerConnection, _: dict[str, str]) -> None:
        await socket.close(*close)

    async with control_plane({}, handle) as (url, dials), running_uplink(url, "t", timing=FAST) as rig:
        await until(lambda: len(dials) >= 4, "dials")
        assert rig.uplink.status().failures >= 3


async def test_replaced_ends_the_dialling() -> None:
    async def handle(socket: ServerConnection, _: dict[str, str]) -> None:
        await socket.close(1000, "Replaced by new connection")

    async with control_plane({}, handle) as (url, dials), running_uplink(url, "t", timing=FAST) as rig:
        await until(lambda: rig.uplink.status().state is UplinkState.SUPERSEDED, "superseded")
        await asyncio.sleep(0.1)
        assert len(dials) == 1


def test_the_device_id_is_made_once(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "device-id"
    made = load_device_id(file)
    assert (load_device_id(file), file.stat().st_mode & 0o777) == (made, 0o600)
    for no_id in ("", "\n", "a name", "x" * 300):
        file.write_text(no_id)
        remade = load_device_id(file)
        assert remade == load_device_id(file) != made
    assert [entry.name for entry in file.parent.iterdir()] == ["device-id"]


@pytest.mark.parametrize(
    ("date", "wall"),
    [
        ("Thu, 01 Jan 1970 00:01:40 GMT", 100.0),
        ("Thu, 01 Jan 1970 00:01:40 -0000", 100.0),
        ("yesterday", None),
        ("Thu, 99 Jan 99999999 00:00:00 GMT", None),
        ("", None),
    ],
)
async def test_the_time_of_a_hub_is_read_and_a_senseless_one_is_none(date: str, wall: float | None) -> None:
    body = json.dumps({"connectionId": "c", "wsUrl": "ws://127.0.0.1:1/"}).encode()
    head = f"HTTP/1.1 200 OK\r\nDate: {date}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    async with answering(lambda number: head + body) as (url, _):
        assert (await register(url, "t", Identity("d", "n", {}), None, 0.0)).hub_wall == wall
