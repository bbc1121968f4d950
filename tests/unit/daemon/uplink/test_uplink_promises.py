"""R6, R7 and R13 of ATTACKS.md at the uplink, with a real hub, a real path to it, and a clock of the test's own."""

import asyncio
import contextlib
import itertools
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as serve_sockets

from lodger_daemon.clock import WallTime
from lodger_daemon.uplink.core.retry import RETRY_AFTER_CAP_S, SLOW_WINDOW_CAP_S, WINDOW_CAP_S
from lodger_daemon.uplink.core.status import UplinkState
from lodger_daemon.uplink.timing import UplinkTiming
from support.hub_rig import (
    QUICK,
    JumpingClock,
    Proxy,
    Rig,
    hub_in_a_thread,
    receive_json,
    running_hub,
    running_uplink,
    until,
)
from support.patience import LIMIT_S
from support.turn_parts import TestClock

HALF_OPEN_LIMIT_S = 90.0
WAKE_LIMIT_S = 5.0
TURNS_OF_AN_ANSWER = 50
"""Of the event loop, from a question to its answer through the proxy and the hub; some ten are needed."""


async def connected(rig: Rig) -> None:
    await until(lambda: rig.uplink.status().state is UplinkState.CONNECTED, f"connected; {rig.uplink.status()}")


async def pass_time(clock: TestClock, delay_s: float) -> None:
    """Move the clock once somebody waits on it, and let what that set going reach the other side and come back."""
    await until(lambda: clock.sleeping > 0, "somebody waits")
    clock.advance(delay_s)
    # Both sides are in this loop: on a busy machine ten milliseconds may be over before it has gone round twice.
    for _ in range(TURNS_OF_AN_ANSWER):
        await asyncio.sleep(0)
    await asyncio.sleep(0.01)


async def start_connected(clock: TestClock, rig: Rig) -> None:
    await connected(rig)
    await until(lambda: clock.sleeping > 0, "the heartbeat waits")


@pytest.mark.parametrize("after_s", [0.0, 1.0, 19.0, 20.0, 21.0, 39.0, 59.0])
async def test_r6_a_half_open_socket_is_given_up_within_90_s_whenever_it_died(tmp_path: Path, after_s: float) -> None:
    clock = TestClock()
    async with (
        running_hub(tmp_path) as hub,
        Proxy(int(hub.url.rpartition(":")[2])) as proxy,
        running_uplink(
            f"http://127.0.0.1:{proxy.port}", hub.token("machine"), timing=UplinkTiming(), clock=clock
        ) as rig,
    ):
        await start_connected(clock, rig)
        for _ in range(int(after_s)):
            await pass_time(clock, 1.0)
        assert rig.uplink.status().state is UplinkState.CONNECTED
        proxy.swallow()
        died_at, connections = clock.now, proxy.connections
        while rig.uplink.status().state is UplinkState.CONNECTED and clock.now - died_at < 2 * HALF_OPEN_LIMIT_S:
            await pass_time(clock, 1.0)
        assert clock.now - died_at <= HALF_OPEN_LIMIT_S
        assert rig.uplink.status().reason == "the hub has stopped answering"
        while proxy.connections == connections:
            await pass_time(clock, 1.0)
        assert clock.now - died_at <= HALF_OPEN_LIMIT_S


async def test_r6_an_hour_of_quiet_on_a_healthy_path_keeps_the_link(tmp_path: Path) -> None:
    clock = TestClock()
    async with (
        running_hub(tmp_path) as hub,
        Proxy(int(hub.url.rpartition(":")[2])) as proxy,
        running_uplink(
            f"http://127.0.0.1:{proxy.port}", hub.token("machine"), timing=UplinkTiming(), clock=clock
        ) as rig,
    ):
        await start_connected(clock, rig)
        since, connections = rig.uplink.status().since, proxy.connections
        for number in range(180):
            for _ in range(10):
                await until(lambda: clock.sleeping > 0, "somebody waits")
                clock.advance(2.0)
                await asyncio.sleep(0)
            await until(lambda: (rig.uplink.status().last_contact_age_s or 0.0) < 20.0, f"answer {number}")
        assert (rig.uplink.status().since, proxy.connections) == (since, connections)


async def test_r6_a_slow_path_is_not_taken_for_a_dead_one(tmp_path: Path) -> None:
    """Every answer takes longer than the time between two probes."""
    async with (
        running_hub(tmp_path) as hub,
        Proxy(int(hub.url.rpartition(":")[2]), delay_s=0.12) as proxy,
        running_uplink(f"http://127.0.0.1:{proxy.port}", hub.token("machine"), timing=QUICK) as rig,
    ):
        await connected(rig)
        since, heard = rig.uplink.status().since, len(proxy.heard)
        await until(lambda: len(proxy.heard) > heard + 12, "a dozen probes")
        assert (rig.uplink.status().state, rig.uplink.status().since) == (UplinkState.CONNECTED, since)


STALLS = [(1.5, 1), (0.35, 8), (2.6, 2)]


@pytest.mark.parametrize(("stall_s", "times"), STALLS)
async def test_r6_a_starved_loop_never_kills_a_healthy_link(tmp_path: Path, stall_s: float, times: int) -> None:
    """Many probe intervals long, once or again and again; the hub answers meanwhile and is not heard."""
    with hub_in_a_thread(tmp_path) as hub:
        async with running_uplink(hub.url, hub.token("machine")) as rig:
            await connected(rig)
            since = rig.uplink.status().since
            for _ in range(times):
                await asyncio.sleep(0.12)
                time.sleep(stall_s)  # noqa: ASYNC251 - the blocked loop is what is tested
            await asyncio.sleep(0.5)
            assert (rig.uplink.status().state, rig.uplink.status().since) == (UplinkState.CONNECTED, since)
            async with hub.client("device-1") as socket:
                await socket.send('{"type":"x"}')
                assert (await receive_json(socket))["type"] == "x"


@pytest.mark.soak
@pytest.mark.timeout(300)
async def test_r6_a_loop_starved_for_two_minutes_keeps_its_link(tmp_path: Path) -> None:
    with hub_in_a_thread(tmp_path) as hub:
        async with running_uplink(hub.url, hub.token("machine"), timing=UplinkTiming()) as rig:
            await connected(rig)
            since = rig.uplink.status().since
            await asyncio.sleep(19.5)
            time.sleep(120)  # noqa: ASYNC251 - the blocked loop is what is tested
            await asyncio.sleep(10)
            assert (rig.uplink.status().state, rig.uplink.status().since) == (UplinkState.CONNECTED, since)


@pytest.mark.parametrize(("wall_s", "mono_s"), [(8 * 3600.0, 0.0), (600.0, 600.0), (5.0, 5.0)])
async def test_r7_the_first_frame_after_a_wake_goes_out_within_5_s(
    tmp_path: Path, wall_s: float, mono_s: float
) -> None:
    """The wall clock alone jumps (suspend), or both do (a stopped process); then time goes on as ever."""
    clock = WakingClock()
    async with (
        running_hub(tmp_path) as hub,
        Proxy(int(hub.url.rpartition(":")[2])) as proxy,
        running_uplink(
            f"http://127.0.0.1:{proxy.port}", hub.token("machine"), timing=UplinkTiming(), clock=clock
        ) as rig,
    ):
        await start_connected(clock, rig)
        await pass_time(clock, 1.0)
        since, heard = rig.uplink.status().since, len(proxy.heard)
        clock.wall_ahead_s += wall_s - mono_s
        woke_at = clock.now + mono_s
        await pass_time(clock, mono_s)
        while len(proxy.heard) == heard and clock.now - woke_at < 60:
            await pass_time(clock, 0.5)
        assert clock.now - woke_at <= WAKE_LIMIT_S
        await until(lambda: (rig.uplink.status().last_contact_age_s or 0.0) < WAKE_LIMIT_S, "it is answered")
        for _ in range(20):
            await pass_time(clock, 1.0)
        assert (rig.uplink.status().state, rig.uplink.status().since) == (UplinkState.CONNECTED, since)


class WakingClock(TestClock):
    """Its wall may be set ahead of its monotonic time."""

    __test__ = False

    def __init__(self) -> None:
        super().__init__()
        self.wall_ahead_s = 0.0

    def wall(self) -> WallTime:
        return WallTime(super().wall() + self.wall_ahead_s)


async def test_r7_a_try_during_which_the_machine_slept_is_made_anew(tmp_path: Path) -> None:
    """Asleep in the middle of a registration: its answer would never come, and its own limit is 15 s."""
    clock = JumpingClock()
    calls: list[asyncio.StreamWriter] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        calls.append(writer)
        await reader.read()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        timing = UplinkTiming(wake_check_s=0.02)
        async with running_uplink(url, "t", timing=timing, clock=clock) as rig:
            await until(lambda: len(calls) == 1, "the first try")
            await asyncio.sleep(0.05)
            clock.ahead_s = 8 * 3600
            began = time.monotonic()
            await until(lambda: len(calls) == 2, "the second try")
            assert time.monotonic() - began < WAKE_LIMIT_S
            assert rig.uplink.status().failures == 1
        for writer in calls:
            writer.transport.abort()


# -- R13 --


@contextlib.asynccontextmanager
async def flying(clock: TestClock, rig: Rig) -> AsyncIterator[None]:
    """Planned waits take no time; while the uplink is at something, its clock stands still."""

    async def fly() -> None:
        while True:
            await asyncio.sleep(0)
            if rig.uplink.status().state is UplinkState.WAITING and clock.sleeping:
                clock.advance(1.0)

    task = asyncio.create_task(fly())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


PORTAL = b"<html>please log in</html>"


def http(status: int, body: bytes = b"", headers: str = "") -> bytes:
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


@dataclass(frozen=True)
class Trouble:
    """An answer, and how long two tries may lie apart once the waits have grown."""

    name: str
    answer: bytes
    window_s: float
    floor_s: float = 0.0


TROUBLES = (
    *(Trouble(str(status), http(status), SLOW_WINDOW_CAP_S) for status in (400, 401, 403, 404, 410)),
    Trouble("429", http(429), WINDOW_CAP_S),
    Trouble("429 and a number", http(429, b"", "Retry-After: 200\r\n"), WINDOW_CAP_S, 200.0),
    Trouble("429 and nonsense", http(429, b"", "Retry-After: soon\r\n"), WINDOW_CAP_S),
    Trouble("429 and a year", http(429, b"", "Retry-After: 31536000\r\n"), WINDOW_CAP_S, RETRY_AFTER_CAP_S),
    Trouble("410 and a number", http(410, b"", "Retry-After: 200\r\n"), SLOW_WINDOW_CAP_S, 200.0),
    *(Trouble(str(status), http(status), WINDOW_CAP_S) for status in (500, 502, 503)),
    Trouble("503 and a number", http(503, b"", "Retry-After: 90\r\n"), WINDOW_CAP_S, 90.0),
    Trouble("captive portal", http(200, PORTAL, "Content-Type: text/html\r\n"), SLOW_WINDOW_CAP_S),
    Trouble("redirect to a portal", http(302, PORTAL, "Location: http://portal.example/\r\n"), SLOW_WINDOW_CAP_S),
    Trouble("cut off", b"", WINDOW_CAP_S),
    Trouble("no http", b"\x16\x03\x01garbage\r\n\r\n", SLOW_WINDOW_CAP_S),
)
TRIES = 40


@contextlib.asynccontextmanager
async def answering(answer: Callable[[bytes], bytes], note: Callable[[], None]) -> AsyncIterator[str]:
    """A server that answers each request's first line and closes."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                (int(line[15:]) for line in head.lower().split(b"\r\n") if line[:15] == b"content-length:"), 0
            )
            await reader.readexactly(length)
            note()
            writer.write(answer(head))
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def check_gaps(moments: list[float], trouble: Trouble) -> None:
    """Neither given up nor hammered, once the waits have grown to their cap."""
    gaps = [later - earlier for earlier, later in itertools.pairwise(moments)]
    grown = gaps[len(gaps) // 2 :]
    assert max(gaps) <= max(2 * trouble.window_s, trouble.floor_s + trouble.window_s) + 1, gaps
    assert min(gaps) >= trouble.floor_s - 1, gaps
    assert sum(grown) / len(grown) >= trouble.window_s / 2, gaps


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.name)
async def test_r13_no_answer_to_a_registration_ends_the_trying(trouble: Trouble) -> None:
    """An hour and more of the clock; then the hub is well again, and the next try succeeds."""
    clock, moments = TestClock(), list[float]()
    mended: list[bytes] = []
    dialled = asyncio.Event()

    async def on_socket(socket: ServerConnection) -> None:
        dialled.set()
        await socket.wait_closed()

    async with serve_sockets(on_socket, "127.0.0.1", 0) as sockets:
        port = next(iter(sockets.sockets)).getsockname()[1]
        lease = http(200, json.dumps({"connectionId": "c", "wsUrl": f"ws://127.0.0.1:{port}/"}).encode())
        async with (
            answering(lambda _: mended[0] if mended else trouble.answer, lambda: moments.append(clock.mono())) as url,
            running_uplink(url, "t", timing=UplinkTiming(wake_check_s=30.0), clock=clock) as rig,
            flying(clock, rig),
        ):
            await until(lambda: len(moments) >= TRIES, f"{TRIES} tries; {rig.uplink.status()}")
            assert rig.uplink.status().reason
            mended.append(lease)
            async with asyncio.timeout(LIMIT_S):
                await dialled.wait()
    check_gaps(moments[:TRIES], trouble)


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.name)
async def test_r13_no_answer_to_an_upgrade_ends_the_trying(trouble: Trouble) -> None:
    clock, dials, where = TestClock(), list[float](), list[bytes]()

    def answer(head: bytes) -> bytes:
        if head.startswith(b"POST"):
            return http(200, json.dumps({"connectionId": "c", "wsUrl": where[0].decode()}).encode())
        dials.append(clock.mono())
        return trouble.answer

    async with answering(answer, lambda: None) as url:
        where.append(f"{url.replace('http', 'ws')}/socket".encode())
        async with (
            running_uplink(url, "t", timing=UplinkTiming(wake_check_s=30.0), clock=clock) as rig,
            flying(clock, rig),
        ):
            await until(lambda: len(dials) >= TRIES, f"{TRIES} tries; {rig.uplink.status()}")
            assert rig.uplink.status().reason
    check_gaps(dials[:TRIES], trouble)


@pytest.mark.parametrize("kind", ["no handshake", "strange certificate"])
async def test_r13_bad_tls_does_not_end_the_trying(tmp_path: Path, kind: str) -> None:
    clock, moments = TestClock(), list[float]()

    async def handle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        moments.append(clock.mono())
        writer.write(b"this is no handshake, whatever was hoped for")
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    if kind == "strange certificate":
        server.close()
        server = await strange_tls(tmp_path, lambda: moments.append(clock.mono()))
    async with server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with (
            running_uplink(url, "t", timing=UplinkTiming(wake_check_s=30.0), clock=clock) as rig,
            flying(clock, rig),
        ):
            await until(lambda: rig.uplink.status().failures >= 20, f"twenty tries; {rig.uplink.status()}")
            assert "certificate" in (rig.uplink.status().reason or "")


async def strange_tls(folder: Path, note: Callable[[], None]) -> asyncio.Server:
    """A server whose certificate nobody vouches for."""
    certificate, key = folder / "cert.pem", folder / "key.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    words += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    made = await asyncio.create_subprocess_exec(*words, stderr=asyncio.subprocess.DEVNULL)
    assert await made.wait() == 0
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    async def handle(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        note()
        writer.close()

    return await asyncio.start_server(handle, "127.0.0.1", 0, ssl=context)
