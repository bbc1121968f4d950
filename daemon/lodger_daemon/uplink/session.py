"""One link to the hub while it lasts."""

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lodger_daemon.clock import Clock
from lodger_daemon.uplink.core.closing import CloseMeaning, meaning_of
from lodger_daemon.uplink.core.heartbeat import Beat, HeartbeatState, on_tick
from lodger_daemon.uplink.core.retry import Failure
from lodger_daemon.uplink.core.wake import ClockReading, Gap, gap_between
from lodger_daemon.uplink.dial import Sockets
from lodger_daemon.uplink.errors import LinkLost
from lodger_daemon.uplink.port import ClientPort
from lodger_daemon.uplink.router import FrameRouter, HubHearer
from lodger_daemon.uplink.timing import UplinkTiming
from lodger_protocol.relay import MalformedRelayMessage, RelayEvent, is_enveloped, unwrap, wrap

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

logger = logging.getLogger(__name__)

PING: Final = b'{"type":"ping"}'
BARE_FRAME_BYTES: Final = 4096
"""The hub's own frames are small; larger ones are a client's and are not looked into here."""
RELAY_LABEL: Final = "relay"
CLIENTS: Final = 256
"""More than a hub lets in; one that opens without end is not followed."""
LAST_LOOK_S: Final = 0.05
"""Before a link is given up, what has arrived meanwhile is read: a program that was held up has it waiting."""

STREAM_TYPES: Final = frozenset(
    {b"stream_delta", b"update_device_status", b"update_loop_status", b"update_queue", b"update_subagent_state"}
)
TYPE_IN_FRONT: Final = re.compile(rb'\s*\{\s*"type"\s*:\s*"([a-z_]+)"')


@dataclass(frozen=True, slots=True)
class LinkEnd:
    """How a link ended."""

    failure: Failure
    meaning: CloseMeaning
    reason: str


class Session:
    """Runs one link. The reader is the only one that takes frames from it; anyone may send."""

    def __init__(
        self,
        sockets: Sockets,
        router: FrameRouter,
        hearer: HubHearer,
        clock: Clock,
        timing: UplinkTiming,
        *,
        connection_id: str,
        enveloped: bool,
        on_contact: Callable[[], None],
        memory_level_at: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._sockets = sockets
        self._router = router
        self._hearer = hearer
        self._clock = clock
        self._timing = timing
        self._connection_id = connection_id
        self._enveloped = enveloped
        self._on_contact = on_contact
        self._memory_level_at = memory_level_at
        self._reported_level_at: float | None = None
        self._heartbeat = HeartbeatState()
        self._began = ClockReading(clock.wall(), clock.mono())
        self._clients: dict[str, ClientPort] = {}
        self._killed: asyncio.Future[LinkEnd] = asyncio.get_running_loop().create_future()
        self.answered = False
        """Whether anything at all was heard on this link."""

    @property
    def clients(self) -> int:
        return len(self._clients)

    async def run(self) -> LinkEnd:
        """Until the link ends for whatever reason; all clients are closed then, and the sockets too."""
        work: list[asyncio.Future[LinkEnd]] = [
            asyncio.ensure_future(self._read()),
            asyncio.ensure_future(self._beat()),
        ]
        if self._sockets.stream is not None:
            work.append(asyncio.ensure_future(self._watch_stream(self._sockets.stream)))
        try:
            done, _ = await asyncio.wait([*work, self._killed], return_when=asyncio.FIRST_COMPLETED)
            return next(iter(done)).result()
        finally:
            for task in work:
                task.cancel()
            self._sockets.abort()
            await asyncio.gather(*work, return_exceptions=True)
            await self._close_clients()

    def kill(self, reason: str) -> None:
        """Give the link up: the clients resume over the next one, so that no frame is ever left out."""
        if not self._killed.done():
            self._killed.set_result(LinkEnd(Failure.SILENT, CloseMeaning.TRANSIENT, reason))

    async def send(self, message: bytes) -> None:
        """One message to the hub, within the limit. Raises: LinkLost."""
        await self._send_on(self._socket_for(message), message)

    async def _send_on(self, socket: "ClientConnection", message: bytes) -> None:
        from websockets.exceptions import ConnectionClosed

        try:
            async with asyncio.timeout(self._timing.send_limit_s):
                await socket.send(message, text=True)
        except TimeoutError as error:
            self.kill("the hub did not take a frame in time")
            raise LinkLost from error
        except ConnectionClosed as error:
            raise LinkLost from error

    def _socket_for(self, message: bytes) -> "ClientConnection":
        stream = self._sockets.stream
        if stream is None:
            return self._sockets.control
        found = TYPE_IN_FRONT.match(message)
        return stream if found is not None and found[1] in STREAM_TYPES else self._sockets.control

    async def _read(self) -> LinkEnd:
        from websockets.exceptions import ConnectionClosed

        if not self._enveloped:
            self._open_client(RELAY_LABEL, self.send)
        try:
            for early in self._sockets.early:
                await self._take(early)
            while True:
                message = await self._sockets.control.recv(decode=False)
                assert isinstance(message, bytes)
                self._heartbeat = self._heartbeat.heard()
                self.answered = True
                self._on_contact()
                await self._take(message)
        except ConnectionClosed as error:
            return _end_of(error.rcvd.code if error.rcvd else 1006, error.rcvd.reason if error.rcvd else "")
        except MalformedRelayMessage as error:
            return LinkEnd(Failure.NOT_A_HUB, CloseMeaning.TRANSIENT, f"the hub sent what is no relay frame: {error}")

    async def _take(self, message: bytes) -> None:
        if self._enveloped and is_enveloped(message):
            await self._take_enveloped(message)
            return
        if len(message) <= BARE_FRAME_BYTES and self._take_own(message):
            return
        if not self._enveloped:
            await self._clients[RELAY_LABEL].put(message)

    async def _take_enveloped(self, message: bytes) -> None:
        relayed = unwrap(message)
        client_id = relayed.header.client
        match relayed.header.event:
            case RelayEvent.OPENED:
                await self._close_client(client_id)
                if len(self._clients) < CLIENTS:
                    self._open_client(client_id, self._sender_for(client_id), relayed.header.device)
                else:
                    await self.send(wrap(client_id, b"", RelayEvent.CLOSED))
            case RelayEvent.CLOSED:
                await self._close_client(client_id)
            case RelayEvent.FRAME:
                client = self._clients.get(client_id)
                if client is not None:
                    await client.put(relayed.body)

    def _take_own(self, message: bytes) -> bool:
        """Whether the frame was meant for the uplink itself."""
        try:
            frame = json.loads(message)
        except (ValueError, RecursionError):
            return False
        if not isinstance(frame, dict):
            return False
        match frame.get("type"):
            case "pong":
                return True
            case "memory_head":
                agent_id, head = frame.get("agent_id"), frame.get("head")
                if isinstance(agent_id, str) and isinstance(head, str):
                    self._hearer.memory_head(agent_id, head)
                return True
            case "shared_memory_head":
                name, head = frame.get("name"), frame.get("head")
                if isinstance(name, str) and isinstance(head, str):
                    self._hearer.shared_memory_head(name, head)
                return True
            case "shared_memories_changed":
                agent_id = frame.get("agent_id")
                if isinstance(agent_id, str):
                    self._hearer.shared_memories_changed(agent_id)
                return True
            case "devices_revoked":
                device_ids = frame.get("device_ids")
                if isinstance(device_ids, list):
                    self._hearer.devices_revoked(tuple(one for one in device_ids if isinstance(one, str) and one))
                return True
            case _:
                return False

    def _sender_for(self, client_id: str) -> Callable[[bytes], Awaitable[None]]:
        header = wrap(client_id, b"")

        def send(frame: bytes) -> Coroutine[object, object, None]:
            return self.send(header + frame)

        return send

    def _open_client(self, client_id: str, send: Callable[[bytes], Awaitable[None]], device_id: str = "") -> None:
        async def give_up() -> None:
            if self._enveloped:
                await self.send(wrap(client_id, b"", RelayEvent.CLOSED))
            else:
                self.kill("a frame could not be handled")

        self._clients[client_id] = ClientPort(self._router, client_id, self._connection_id, send, give_up, device_id)

    async def _close_client(self, client_id: str) -> None:
        client = self._clients.pop(client_id, None)
        if client is not None:
            await client.aclose()

    async def _close_clients(self) -> None:
        clients, self._clients = list(self._clients.values()), {}
        await asyncio.gather(*(client.aclose() for client in clients), return_exceptions=True)

    async def _beat(self) -> LinkEnd:
        """Probe until the hub no longer answers or no longer takes frames."""
        try:
            await self._report_memory()
            await self._probe_while_answered()
        except LinkLost:
            return LinkEnd(Failure.SILENT, CloseMeaning.TRANSIENT, "the hub does not take frames")
        return LinkEnd(Failure.SILENT, CloseMeaning.TRANSIENT, "the hub has stopped answering")

    async def _probe_while_answered(self) -> None:
        """At each interval; after a wake at once, and quickly again. Raises: LinkLost."""
        timing = self._timing
        before = self._began
        due = before.mono + timing.probe_interval_s
        while True:
            pause_s = max(0.0, min(timing.wake_check_s, due - before.mono))
            await self._clock.sleep(pause_s)
            now = self._reading()
            gap = gap_between(before, now, pause_s)
            before = now
            # A first sync would else be shown as none until the next probe.
            await self._report_memory()
            if gap is Gap.SLEPT:
                self._heartbeat = self._heartbeat.woke()
                due = now.mono
            if now.mono < due:
                if gap is Gap.HELD_UP:
                    await self._probe()
                continue
            state, beat = on_tick(self._heartbeat)
            if beat is Beat.DEAD and not await self._heard_at_last():
                return
            if beat is Beat.PROBE:
                self._heartbeat = state
                await self._probe()
            due = now.mono + (timing.wake_probe_interval_s if state.waking else timing.probe_interval_s)

    async def _heard_at_last(self) -> bool:
        asked = self._heartbeat
        await self._clock.sleep(LAST_LOOK_S)
        return self._heartbeat != asked

    async def _report_memory(self) -> None:
        """Tell a hub of ours since when this machine's memory is level with its own; others have no place for it."""
        level_at = self._memory_level_at()
        if not self._enveloped or level_at is None or level_at == self._reported_level_at:
            return
        await self.send(json.dumps({"type": "lodger_presence", "memory_synced_at": level_at}).encode())
        self._reported_level_at = level_at

    async def _probe(self) -> None:
        await self.send(PING)
        if self._sockets.stream is not None:
            await self._send_on(self._sockets.stream, PING)

    async def _watch_stream(self, stream: "ClientConnection") -> LinkEnd:
        """A pair is whole or nothing. What comes on this socket is not for us."""
        from websockets.exceptions import ConnectionClosed

        try:
            while True:
                await stream.recv(decode=False)
        except ConnectionClosed as error:
            return _end_of(error.rcvd.code if error.rcvd else 1006, error.rcvd.reason if error.rcvd else "")

    def _reading(self) -> ClockReading:
        return ClockReading(self._clock.wall(), self._clock.mono())


def _end_of(code: int, reason: str) -> LinkEnd:
    meaning = meaning_of(code, reason)
    failure = Failure.LEASE_UNKNOWN if meaning is CloseMeaning.LEASE_UNKNOWN else Failure.CLOSED
    words = "the connection broke" if code == 1006 else f"the hub closed the connection with {code} {reason}".rstrip()
    return LinkEnd(failure, meaning, words)
