"""A real hub in the test's loop, a byte-level proxy in front of it, and peers that remember what they were given."""

import asyncio
import contextlib
import json
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from lodger_daemon.clock import Clock, WallTime
from lodger_daemon.randomness import SeededRng
from lodger_daemon.system_clock import SystemClock
from lodger_daemon.uplink.link import Uplink
from lodger_daemon.uplink.router import FramePeer, SendFrames
from lodger_daemon.uplink.timing import UplinkTiming
from lodger_hub.options import HubOptions, LanListener, RelayLimits
from lodger_hub.reach import Reach
from lodger_hub.server import serve
from lodger_hub.store.contract import MailLimits
from support.patience import LIMIT_S

QUICK = UplinkTiming(probe_interval_s=0.1, wake_check_s=0.05, time_scale=0.05)


async def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition that another task makes true."""
    try:
        async with asyncio.timeout(LIMIT_S):
            while not condition():  # noqa: ASYNC110 - the condition is not ours to signal
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"never happened: {what}") from None


@dataclass
class Hub:
    state: Path
    url: str
    reach: Reach

    def token(self, role: str) -> str:
        return (self.state / f"{role}.token").read_text().strip()

    def client(self, machine: str, query: str = "", token: str | None = None) -> connect:
        return connect(
            f"{self.url.replace('http', 'ws')}/v1/environments/{machine}/status/ws{query}",
            additional_headers={"Authorization": f"Bearer {token or self.token('client')}"},
            compression=None,
            max_size=None,
        )

    def machine(self, ws_url: str, device_id: str = "device-1") -> connect:
        return connect(
            f"{ws_url}&deviceId={device_id}&connectionName=test",
            additional_headers={"Authorization": f"Bearer {self.token('machine')}"},
            compression=None,
            max_size=None,
        )


@contextlib.asynccontextmanager
async def running_hub(
    state: Path,
    port: int = 0,
    limits: RelayLimits | None = None,
    tls: tuple[Path, Path] | None = None,
    *,
    lan: LanListener | None = None,
    public_url: str | None = None,
    mail: MailLimits | None = None,
) -> AsyncIterator[Hub]:
    ready: asyncio.Future[Reach] = asyncio.get_running_loop().create_future()
    certificate, key = tls or (None, None)
    options = HubOptions(
        state=state,
        port=port,
        limits=limits or RelayLimits(),
        tls_certificate=certificate,
        tls_key=key,
        lan=lan,
        public_url=public_url,
        mail=mail or MailLimits(),
    )
    task = asyncio.create_task(serve(options, ready.set_result))
    await asyncio.wait([task, ready], return_when=asyncio.FIRST_COMPLETED, timeout=LIMIT_S)
    if task.done():
        await task
    try:
        yield Hub(state, ready.result().url, ready.result())
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@contextlib.contextmanager
def hub_in_a_thread(state: Path) -> Iterator[Hub]:
    """A hub that goes on while the test's own event loop is blocked."""
    ready: queue.Queue[Reach | BaseException] = queue.Queue()
    stopping: list[Callable[[], object]] = []

    async def serving() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        stopping.append(lambda: loop.call_soon_threadsafe(task.cancel))
        await serve(HubOptions(state=state, port=0), ready.put)

    def run() -> None:
        try:
            asyncio.run(serving())
        except asyncio.CancelledError:
            pass
        except BaseException as error:  # told to the test
            ready.put(error)

    thread = threading.Thread(target=run, name="hub")
    thread.start()
    try:
        reach = ready.get(timeout=LIMIT_S)
        if isinstance(reach, BaseException):
            raise reach
        yield Hub(state, reach.url, reach)
    finally:
        for stop in stopping:
            stop()
        thread.join(LIMIT_S)


@dataclass
class EchoPeer:
    """Answers each frame with itself, marked."""

    send: SendFrames
    label: str
    wire_name: str | None
    cut: Callable[[], None] | None
    device_id: str = ""
    got: list[bytes] = field(default_factory=list)
    closed: bool = False

    async def receive(self, frame: bytes) -> None:
        self.got.append(frame)
        if frame == b'{"type":"boom"}':
            raise RuntimeError("boom")
        content = json.loads(frame)
        if content["type"] == "cut_me":
            assert self.cut is not None
            self.cut()
            return
        for number in range(content.get("answers", 1)):
            await self.send([json.dumps({**content, "answer": number}).encode()])

    async def close(self) -> None:
        self.closed = True


@dataclass
class EchoRouter:
    peers: list[EchoPeer] = field(default_factory=list)

    def open(
        self,
        send: SendFrames,
        label: str,
        *,
        wire_name: str | None = None,
        device_id: str = "",
        cut: Callable[[], None] | None = None,
    ) -> FramePeer:
        peer = EchoPeer(send, label, wire_name, cut, device_id)
        self.peers.append(peer)
        return peer


class JumpingClock(SystemClock):
    """The real clock, with a wall that a test can move."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def wall(self) -> WallTime:
        return WallTime(super().wall() + self.ahead_s)


@dataclass
class Rig:
    uplink: Uplink
    router: EchoRouter
    heads: list[tuple[str, str]]
    revoked: list[str]


@dataclass
class Heard:
    """Implements `HubHearer`."""

    heads: list[tuple[str, str]]
    revoked: list[str]

    def memory_head(self, agent_id: str, head: str) -> None:
        self.heads.append((agent_id, head))

    def shared_memory_head(self, name: str, head: str) -> None:
        self.heads.append((name, head))

    def shared_memories_changed(self, agent_id: str) -> None:
        pass

    def devices_revoked(self, device_ids: tuple[str, ...]) -> None:
        self.revoked += device_ids


@contextlib.asynccontextmanager
async def running_uplink(
    url: str,
    token: str,
    *,
    device_id: str = "device-1",
    timing: UplinkTiming = QUICK,
    clock: Clock | None = None,
    ca_file: Path | None = None,
    metadata: Mapping[str, object] | None = None,
    memory_level_at: Callable[[], float | None] = lambda: None,
) -> AsyncIterator[Rig]:
    router = EchoRouter()
    heads: list[tuple[str, str]] = []
    revoked: list[str] = []

    async def provide() -> str:
        return token

    uplink = Uplink(
        url,
        provide,
        device_id,
        "test machine",
        metadata or {"lettaCodeVersion": "0.1"},
        router,
        Heard(heads, revoked),
        clock or SystemClock(),
        SeededRng(1),
        ca_file=ca_file,
        timing=timing,
        memory_level_at=memory_level_at,
    )
    task = asyncio.create_task(uplink.run())
    try:
        yield Rig(uplink, router, heads, revoked)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def receive_json(socket: ClientConnection) -> Any:
    async with asyncio.timeout(LIMIT_S):
        return json.loads(await socket.recv())


class Proxy:
    """Passes bytes on, until it is told to swallow them without closing anything. What comes from the dialling side is
    noted with the moment it came."""

    def __init__(self, target_port: int, delay_s: float = 0.0) -> None:
        self._target_port = target_port
        self._delay_s = delay_s
        self.heard: list[tuple[int, float]] = []
        """The number of a connection and a moment of the event loop's clock, also for what is swallowed."""
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self._upstream: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.swallowed_connections: set[int] = set()
        self.connections = 0

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    def swallow(self) -> None:
        """From now on the connections there are carry nothing; new ones work."""
        self.swallowed_connections = set(range(self.connections + 1))

    def cut(self) -> None:
        """End the connections there are, at both ends."""
        for writer in self._writers:
            writer.transport.abort()

    async def __aenter__(self) -> "Proxy":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        self._writers += [writer, upstream_writer]
        self._upstream.add(upstream_writer)
        for source, sink in ((reader, upstream_writer), (upstream_reader, writer)):
            task = asyncio.create_task(self._pump(number, source, sink))
            self._tasks.add(task)

    async def _pump(self, number: int, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                if sink in self._upstream:
                    self.heard.append((number, asyncio.get_running_loop().time()))
                if self._delay_s:
                    await asyncio.sleep(self._delay_s)
                if number not in self.swallowed_connections:
                    sink.write(data)
                    await sink.drain()
            if number not in self.swallowed_connections:
                sink.close()
