"""The hub between daemon and clients: the real switchboard and the real uplink session over lines in memory."""

import asyncio
import json
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json
from starlette.websockets import WebSocket
from websockets.exceptions import ConnectionClosedError
from websockets.frames import Close

from lodger_daemon.uplink.core.retry import Failure, RetryState, after_failure, after_link
from lodger_daemon.uplink.dial import Sockets
from lodger_daemon.uplink.session import Session
from lodger_daemon.uplink.timing import UplinkTiming
from lodger_hub.access.tokens import Principal
from lodger_hub.options import RelayLimits
from lodger_hub.relay.core.bare import Interest
from lodger_hub.relay.switchboard import MachineLink, Switchboard
from lodger_hub.store.contract import Environment, TokenRole
from simulation.line import Closed, End, Line, Message
from simulation.loop import Life, LifeState
from simulation.world import World

if TYPE_CHECKING:
    from simulation.daemon import SimDaemon

CONNECTION = "connection-of-the-machine"


class Contacts:
    """What the switchboard needs of the hub's store."""

    async def note_contact(self, connection_id: str, at_ms: int, *, connected: bool = False) -> None:
        await asyncio.sleep(0.001)

    async def note_memory_sync(self, connection_id: str, at_ms: int) -> None:
        await asyncio.sleep(0.001)

    async def revoked_devices(self) -> tuple[str, ...]:
        await asyncio.sleep(0.001)
        return ()


class HubSocket:
    """The hub's end of a line as the server hands it to the switchboard."""

    def __init__(self) -> None:
        self._arrived: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._arrived.put_nowait({"type": "websocket.connect"})
        self.line: Line
        self.end: End

    def take(self, message: Message) -> None:
        if isinstance(message, Closed):
            self._arrived.put_nowait({"type": "websocket.disconnect", "code": message.code})
        else:
            text = message if isinstance(message, str) else message.decode()
            self._arrived.put_nowait({"type": "websocket.receive", "text": text})

    async def accepted(self) -> WebSocket:
        scope = {"type": "websocket", "path": "/", "headers": [], "query_string": b""}
        socket = WebSocket(scope, self._arrived.get, self._send)  # type: ignore[arg-type]
        await socket.accept()
        return socket

    async def _send(self, event: Any) -> None:
        match event["type"]:
            case "websocket.send":
                self.line.send(self.end, event["text"])
            case "websocket.close":
                self.line.close(self.end, event.get("code", 1000), event.get("reason") or "")
            case _:
                pass


class Hub:
    """One hub process after another."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.life: Life | None = None
        self.lines: list[Line] = []
        self.start()

    def start(self) -> None:
        self._world.note("hub", "is up")
        self.life = Life("hub")
        self._world.lives.append(self.life)
        self.life.run(self._open)

    def _open(self) -> None:
        self._switchboard = Switchboard(RelayLimits(), Contacts(), lambda token: True, self._world.wall_s)  # type: ignore[arg-type]

    def crash(self) -> None:
        if self.life is None:
            return
        self._world.note("hub", "is killed")
        self.life.state = LifeState.DEAD
        self.life = None
        for line in self.lines:
            line.cut()
        self.lines.clear()
        self._world.later(self._world.between(0.5, 20), self.start)

    def dial(self, near: End, machine: bool) -> Line:
        """Raises: ConnectionError when no hub is up."""
        life = self.life
        if life is None:
            raise ConnectionError("no hub is up")
        socket = HubSocket()
        far = End(life, socket.take)
        socket.end, socket.line = far, Line(self._world, near, far)
        self.lines = [line for line in self.lines if not line.broken]
        self.lines.append(socket.line)
        work = self._serve_machine(socket) if machine else self._serve_client(socket)
        self._world.loop.create_task(work, context=life.context.copy())
        return socket.line

    async def _serve_machine(self, hub_socket: HubSocket) -> None:
        environment = Environment(
            id="1",
            connection_id=CONNECTION,
            device_id="machine",
            connection_name="workstation",
            listener_instance_id=None,
            metadata={"relay_envelope": True},
            first_seen_at_ms=0,
            last_seen_at_ms=0,
            connected_at_ms=None,
            last_heartbeat_at_ms=None,
        )
        socket = await hub_socket.accepted()
        await self._switchboard.serve_machine(socket, environment, "token-of-the-machine", _no_mail, _not_kept)

    async def _serve_client(self, hub_socket: HubSocket) -> None:
        socket = await hub_socket.accepted()
        machine = self._switchboard.machine(CONNECTION)
        if machine is None:
            await socket.close(1013, "the machine is not connected")
            return
        caller = Principal(TokenRole.CLIENT, "token-of-the-client", b"", "device-1")
        await self._switchboard.serve_client(socket, machine, Interest(), caller, _not_kept)


async def _not_kept() -> None:
    """When a device was last seen is no part of what is simulated."""


async def _no_mail(link: MachineLink) -> None:
    await asyncio.Event().wait()


class DaemonSocket:
    """The daemon's end of its line to the hub, as `websockets` would have it."""

    def __init__(self, life: Life) -> None:
        self._arrived: asyncio.Queue[Message] = asyncio.Queue()
        self.end = End(life, self._arrived.put_nowait)
        self.line: Line
        self.transport = self

    async def recv(self, decode: bool = False) -> bytes:
        message = await self._arrived.get()
        if isinstance(message, Closed):
            self._arrived.put_nowait(message)
            raise _closed(message)
        return message.encode() if isinstance(message, str) else message

    async def send(self, message: bytes, text: bool = True) -> None:
        try:
            self.line.send(self.end, message.decode())
        except ConnectionError as error:
            raise _closed(Closed()) from error

    def abort(self) -> None:
        self.line.cut()


def _closed(closed: Closed) -> ConnectionClosedError:
    if closed.code == 1006:
        return ConnectionClosedError(None, None)
    return ConnectionClosedError(Close(closed.code, closed.reason), None)


class Hearer:
    def memory_head(self, agent_id: str, head: str) -> None:
        pass

    def shared_memory_head(self, name: str, head: str) -> None:
        pass

    def shared_memories_changed(self, agent_id: str) -> None:
        pass

    def devices_revoked(self, device_ids: tuple[str, ...]) -> None:
        pass


class WatchedRouter:
    """The daemon's router, with a look at each frame that leaves it."""

    def __init__(self, daemon: "SimDaemon") -> None:
        self._daemon = daemon

    def open(self, send: Any, label: str, **options: Any) -> Any:
        async def watched(frames: list[bytes]) -> None:
            for frame in frames:
                self._daemon.watch(from_json(frame))
            await send(frames)

        return self._daemon.router.open(watched, label, **options)


async def keep_uplink(daemon: "SimDaemon", hub: Hub, clock: Any, rng: Any) -> None:
    """Dial, live with the link, dial again: the session and the waits are the product's."""
    retry = RetryState()
    while True:
        failure = Failure.NETWORK
        socket = DaemonSocket(daemon.life)
        try:
            socket.line = hub.dial(socket.end, machine=True)
        except ConnectionError:
            pass
        else:
            daemon.uplink_line = socket.line
            session = Session(
                Sockets(socket),  # type: ignore[arg-type]
                WatchedRouter(daemon),
                Hearer(),
                clock,
                UplinkTiming(),
                connection_id=CONNECTION,
                enveloped=True,
                on_contact=lambda: None,
            )
            began_s = clock.mono()
            end = await session.run()
            daemon.world.note(daemon.life.name, f"lost its hub: {end.reason}")
            failure = end.failure
            retry = after_link(retry, lasted_s=clock.mono() - began_s, answered=session.answered)
        plan = after_failure(retry, failure, chance=rng.random())
        retry = plan.state
        await clock.sleep(plan.delay_s)


class RelayWire:
    """A client's socket to the hub; looks to the client as a `Wire` does."""

    def __init__(self, world: World, hub: Hub, take: Any, lost: Any) -> None:
        """Raises: ConnectionError."""
        self._world = world
        self._take, self._lost = take, lost
        self._end = End(None, self._arrive)
        self._line = hub.dial(self._end, machine=False)

    @property
    def silent(self) -> bool:
        return self._line.silent

    @silent.setter
    def silent(self, silent: bool) -> None:
        self._line.silent = silent

    def send(self, frame: Any) -> None:
        if not self._line.broken:
            self._line.send(self._end, json.dumps(frame))

    def cut(self) -> None:
        if not self._line.broken:
            self._line.cut()

    def _arrive(self, message: Message) -> None:
        if isinstance(message, Closed):
            self._lost()
        else:
            self._take(from_json(message))
