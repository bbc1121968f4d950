"""ATTACKS.md W7 and E5: a token that was taken away or replaced is worth nothing from that moment on."""

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from lodger_daemon.uplink.core.status import UplinkState
from lodger_hub.options import RelayLimits
from support.hub_calls import (
    call,
    closing,
    http_of,
    lease_of,
    letter,
    online,
    page_socket,
    paired,
    running_machine,
    state_of,
)
from support.hub_rig import Hub, running_hub, running_uplink, until
from support.patience import LIMIT_S

DIES_WITHIN_S = 5.0


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Hub]:
    async with running_hub(tmp_path) as hub:
        yield hub


async def refused(hub: Hub, token: str) -> None:
    assert (await call(hub, token, "GET", "/v1/devices"))[0] == 401
    with pytest.raises(InvalidStatus) as caught:
        async with page_socket(hub, "device-1", token):
            pass
    assert caught.value.response.status_code == 401


async def test_e5_a_lost_phones_sockets_die_and_nobody_elses(hub: Hub) -> None:
    device, lost = await paired(hub, "lost")
    _, kept = await paired(hub, "kept")
    async with (
        running_machine(hub) as machine,
        page_socket(hub, "device-1", lost) as first,
        page_socket(hub, "device-1", lost) as second,
        page_socket(hub, "device-1", kept) as other,
    ):
        began = time.monotonic()
        assert (await call(hub, kept, "DELETE", f"/v1/devices/{device}"))[0] == 200
        for page in (first, second):
            assert await closing(page) == (1008, "the token is no longer valid")
        assert time.monotonic() - began < DIES_WITHIN_S
        await other.send('{"type":"still here"}')
        await until(lambda: [frame for _, frame in machine.frames] == [{"type": "still here"}], "other works")
        await until(lambda: len(machine.closed) == 2, "the machine was told that they left")
    await refused(hub, lost)


async def test_e5_what_it_left_for_a_sleeping_machine_is_dropped(hub: Hub) -> None:
    await lease_of(hub)
    device, lost = await paired(hub, "lost")
    _, kept = await paired(hub, "kept")
    path = "/v1/machines/device-1/mailbox"
    assert (await call(hub, lost, "POST", path, json=letter("m1", "rm everything")))[0] == 202
    assert (await call(hub, kept, "POST", path, json=letter("m1", "good morning")))[0] == 202
    assert (await call(hub, kept, "DELETE", f"/v1/devices/{device}"))[0] == 200
    async with running_machine(hub) as machine:
        await until(lambda: machine.texts() == ["good morning"], "only the kept device's message")
        await call(hub, kept, "POST", path, json=letter("m2", "and another"))
        await until(lambda: machine.texts() == ["good morning", "and another"], "and nothing behind it")
    assert await state_of(hub, kept) == [("m1", "delivered", None), ("m2", "delivered", None)]


async def test_e5_what_stands_in_a_queue_of_the_hub_is_dropped(tmp_path: Path) -> None:
    """The machine does not read; its queue is full of the lost phone's frames, and the phone goes on sending."""
    async with running_hub(tmp_path, limits=RelayLimits(queue_bytes=8_000_000)) as hub:
        device, lost = await paired(hub, "lost")
        _, kept = await paired(hub, "kept")
        async with hub.machine(await lease_of(hub)) as machine:
            await online(hub)
            async with page_socket(hub, "device-1", lost) as phone, page_socket(hub, "device-1", kept) as other:
                machine.transport.pause_reading()
                fill = "x" * 1_000_000
                sending = asyncio.create_task(flood(phone, fill))
                await asyncio.sleep(0.5)  # nothing tells when the kernel's buffers are full
                assert (await call(hub, kept, "DELETE", f"/v1/devices/{device}"))[0] == 200
                await other.send('{"type":"last"}')
                machine.transport.resume_reading()
                got = []
                async with asyncio.timeout(LIMIT_S):
                    while not any("last" in text for text in got):
                        got.append(str(await machine.recv()))
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
                sent_before = sum(fill in text for text in got)
                # What the kernel had taken cannot be called back; the 8 MB of the queue can.
                assert sent_before <= 8
                assert "last" in got[-1]


async def flood(phone: object, fill: str) -> None:
    for number in range(60):
        await phone.send(json.dumps({"type": "flood", "number": number, "fill": fill}))  # type: ignore[attr-defined]


async def test_e5_machines_are_told_at_once_or_when_they_come_back(hub: Hub) -> None:
    first, _ = await paired(hub, "first")
    second, _ = await paired(hub, "second")
    async with running_uplink(hub.url, hub.token("machine")) as rig:
        await until(lambda: rig.uplink.status().state is UplinkState.CONNECTED, "connected")
        began = time.monotonic()
        assert (await call(hub, hub.token("client"), "DELETE", f"/v1/devices/{first}"))[0] == 200
        await until(lambda: set(rig.revoked) == {first}, "told while connected")
        assert time.monotonic() - began < DIES_WITHIN_S
    assert (await call(hub, hub.token("client"), "DELETE", f"/v1/devices/{second}"))[0] == 200
    async with running_uplink(hub.url, hub.token("machine")) as rig:
        await until(lambda: set(rig.revoked) == {first, second}, "told when it came back")


async def test_e5_a_machine_is_told_of_any_number_of_devices(hub: Hub) -> None:
    for _ in range(120):
        device, _ = await paired(hub, "x")
        await call(hub, hub.token("client"), "DELETE", f"/v1/devices/{device}")
    async with running_uplink(hub.url, hub.token("machine")) as rig:
        await until(lambda: len(set(rig.revoked)) == 120, "all")


async def test_e5_the_hub_says_of_every_client_which_device_it_is_on(tmp_path: Path) -> None:
    async with running_hub(tmp_path, limits=RelayLimits(acknowledge_s=0.1)) as hub:
        phone, token = await paired(hub, "phone")
        tablet, other = await paired(hub, "tablet")
        await lease_of(hub)
        for whose, message_id in ((token, "m1"), (other, "m2"), (token, "m3")):
            body = letter(message_id, conversation_id=message_id)
            assert (await call(hub, whose, "POST", "/v1/machines/device-1/mailbox", json=body))[0] == 202
        async with running_uplink(hub.url, hub.token("machine")) as rig:
            got = rig.router.peers
            await until(lambda: sum(len(peer.got) for peer in got) == 3, "everything was handed over")
            assert [(peer.device_id, len(peer.got)) for peer in got] == [(phone, 2), (tablet, 1)]
            async with page_socket(hub, "device-1", token):
                await until(lambda: len(got) == 3, "the page")
                assert got[-1].device_id == phone


def raw_upgrade(hub: Hub, token: str) -> socket.socket:
    """A client that never answers a close, and reads only what it is told to; its kernel takes next to nothing."""
    parts = urlsplit(hub.url)
    raw = socket.socket()
    raw.settimeout(10)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.connect((parts.hostname, parts.port))
    raw.sendall(
        (
            "GET /v1/environments/device-1/status/ws HTTP/1.1\r\n"
            f"Host: {parts.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            f"Authorization: Bearer {token}\r\n\r\n"
        ).encode()
    )
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += raw.recv(1)
    assert answer.startswith(b"HTTP/1.1 101"), answer
    return raw


@pytest.mark.parametrize(
    ("left_bytes", "reads"),
    [
        pytest.param(0, True, id="reads and does not answer"),
        pytest.param(50_000, False, id="sleeps, and the kernel of the hub has taken all that is left"),
        pytest.param(10_000_000, False, id="sleeps, and the hub itself still has some"),
    ],
)
async def test_e5_a_socket_that_does_not_go_along_is_cut_in_time(hub: Hub, left_bytes: int, reads: bool) -> None:
    device, lost = await paired(hub, "lost")
    async with running_machine(hub) as machine:
        raw = await asyncio.to_thread(raw_upgrade, hub, lost)
        await until(lambda: len(machine.opened) == 1, "in")
        frame = json.dumps({"type": "x", "fill": "y" * 50_000})
        for _ in range(left_bytes // 50_000):
            await machine.socket.send(f'{{"client":"{machine.opened[0]}"}}\n{frame}', text=True)
        began = time.monotonic()
        assert (await call(hub, hub.token("client"), "DELETE", f"/v1/devices/{device}"))[0] == 200
        took_s = await asyncio.to_thread(until_gone, raw, began, reads)
        assert took_s < DIES_WITHIN_S


def until_gone(raw: socket.socket, began: float, reads: bool) -> float:
    """Reads to the end, or only looks at the state of the connection."""
    with raw:
        while time.monotonic() - began < 2 * DIES_WITHIN_S:
            if reads:
                try:
                    if not raw.recv(65536):
                        break
                except ConnectionError:
                    break
            else:
                state = raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
                if state in (7, 8):  # closed, or the other side has finished
                    break
                time.sleep(0.02)
        return time.monotonic() - began


async def test_w7_a_rotated_client_token_dies_on_open_and_new_sockets(hub: Hub) -> None:
    device, old = await paired(hub)
    async with running_machine(hub):
        async with page_socket(hub, "device-1", old) as page:
            status, answer = await call(hub, old, "POST", f"/v1/devices/{device}/rotate")
            assert status == 200
            assert await closing(page) == (1008, "the token is no longer valid")
        await refused(hub, old)
        async with page_socket(hub, "device-1", answer["token"]) as page:
            await page.send("{}")


async def test_w7_a_rotated_machine_token_dies_and_the_daemon_comes_back_with_the_new_one(hub: Hub) -> None:
    old = hub.token("machine")
    async with hub.machine(await lease_of(hub)) as open_socket:
        await online(hub)
        status, answer = await call(hub, hub.token("client"), "POST", "/v1/devices/own-machine/rotate")
        assert (status, answer["token"]) == (200, None)
        assert await closing(open_socket) == (1008, "the token is no longer valid")
    body = {"deviceId": "device-1", "connectionName": "x"}
    assert (await call(hub, old, "POST", "/v1/environments/register", json=body))[0] == 401
    assert hub.token("machine") != old
    async with running_uplink(hub.url, hub.token("machine")) as rig:
        await until(lambda: rig.uplink.status().state is UplinkState.CONNECTED, "the new token works")


@pytest.mark.parametrize(("method", "path"), [("DELETE", ""), ("POST", "/rotate")])
async def test_w7_a_request_begun_with_the_old_token_is_not_carried_out(hub: Hub, method: str, path: str) -> None:
    await lease_of(hub)
    device, old = await paired(hub)
    body = json.dumps(letter("m1")).encode()
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield body[:10]
        begun.set()
        await go_on.wait()
        yield body[10:]

    async with http_of(hub, old) as http:
        posting = asyncio.create_task(http.post("/v1/machines/device-1/mailbox", content=slowly()))
        await begun.wait()
        await call(hub, hub.token("client"), method, f"/v1/devices/{device}{path}")
        go_on.set()
        # Cut off in the middle of its body, it may not get to read the answer.
        with contextlib.suppress(httpx.TransportError):
            assert (await posting).status_code == 401
    async with running_machine(hub) as machine:
        own = hub.token("client")
        await call(hub, own, "POST", "/v1/machines/device-1/mailbox", json=letter("m2", "mine"))
        await until(lambda: machine.texts() == ["mine"], "nothing of the revoked device")


async def test_w7_a_revoked_device_is_locked_out_like_any_guesser(hub: Hub) -> None:
    """It had shown a good token from here; that proves nothing any more."""
    device, old = await paired(hub)
    assert (await call(hub, old, "GET", "/v1/devices"))[0] == 200
    await call(hub, hub.token("client"), "DELETE", f"/v1/devices/{device}")
    statuses = [(await call(hub, old, "GET", "/v1/devices"))[0] for _ in range(12)]
    assert statuses == [401] * 10 + [429] * 2


async def test_revocation_outlives_the_hub(tmp_path: Path) -> None:
    async with running_hub(tmp_path) as hub:
        device, old = await paired(hub)
        await call(hub, hub.token("client"), "DELETE", f"/v1/devices/{device}")
    async with running_hub(tmp_path) as hub:
        assert (await call(hub, old, "GET", "/v1/devices"))[0] == 401
