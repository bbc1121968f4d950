"""The live sockets of a hub: machines, and the clients that talk to them through it."""

import asyncio
import json
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Final, Protocol

from starlette.websockets import WebSocket

from lodger_hub.access.tokens import Principal
from lodger_hub.errors import StoreFailed
from lodger_hub.options import RelayLimits
from lodger_hub.relay.core.bare import ForOne, Interest, downward, parse, upward
from lodger_hub.relay.links import (
    CLOSED_BY_MACHINE,
    MACHINE_GONE,
    MALFORMED,
    REPLACED,
    REVOKED,
    TOO_LARGE,
    TOO_SLOW,
    Ending,
    SocketLink,
)
from lodger_hub.relay.outgoing import size_of
from lodger_hub.store.contract import Environment, HubStore
from lodger_protocol.relay import HEADER_LIMIT_BYTES, MalformedRelayMessage, RelayEvent, unwrap_text, wrap

logger = logging.getLogger(__name__)

BARE_FRAME_LIMIT: Final = 4096
"""On a socket with the envelope only `ping` and `lodger_presence` travel bare upwards."""
PONG: Final = '{"type":"pong"}'
PRESENCE: Final = "lodger_presence"
"""`{"type": "lodger_presence", "memory_synced_at": SECONDS}`: a daemon's memory is level with the hub's since then."""
LATEST_S: Final = 1e11


REVOKED_AT_ONCE: Final = 50
"""Ids in one frame, which a daemon reads up to 4 KiB."""


def _wrap_text(client_id: str, body: str, event: RelayEvent = RelayEvent.FRAME, device_id: str = "") -> str:
    return wrap(client_id, b"", event, device=device_id).decode() + body


def client_header(client_id: str) -> str:
    """What stands in front of a client's frame on a socket with the envelope."""
    return _wrap_text(client_id, "")


Heard = Callable[[], Awaitable[None]]
"""Called at each sign of life of a socket's other end. May write to the store, and must not raise for it."""


class RelayClient(Protocol):
    """Whoever drives a machine through the hub: a socket, or the hub's own courier."""

    @property
    def id(self) -> str: ...

    @property
    def token_id(self) -> str | None: ...

    @property
    def device_id(self) -> str:
        """The paired device it speaks for."""
        ...

    @property
    def interest(self) -> Interest: ...

    @property
    def header(self) -> str: ...

    @property
    def is_cut(self) -> bool: ...

    def deliver(self, frame: str) -> None: ...

    def cut(self, ending: Ending) -> None: ...


class ClientLink(SocketLink):
    """A client's socket."""

    def __init__(self, socket: WebSocket, limits: RelayLimits, interest: Interest, caller: Principal) -> None:
        super().__init__(socket, limits)
        self.id = f"client-{uuid.uuid4()}"
        self.token_id: str | None = caller.token_id
        self.device_id = caller.device_id
        self.interest = interest
        self.header = client_header(self.id)

    def deliver(self, frame: str) -> None:
        """Hand over one frame. A client that does not keep up is cut: it resumes from its cursor, and neither the
        machine nor the other clients wait for it."""
        if not self.is_cut and not self.out.offer(frame):
            self.cut(TOO_SLOW)


class MachineLink(SocketLink):
    """A daemon's socket."""

    def __init__(
        self,
        socket: WebSocket,
        limits: RelayLimits,
        environment: Environment,
        token_id: str,
        wall: Callable[[], float],
    ) -> None:
        super().__init__(socket, limits)
        self.environment = environment
        self.token_id = token_id
        self.mail_posted = asyncio.Event()
        self.frames_heard = 0
        """Tells a machine that is silent about something from one that is asleep behind an open socket."""
        self.enveloped = environment.metadata.get("relay_envelope") is True
        self.clients: dict[str, RelayClient] = {}
        self._wall = wall
        self.connected_at_ms = int(wall() * 1000)
        self.last_heartbeat_at_ms = self.connected_at_ms

    def admit(self, client: RelayClient) -> None:
        self.clients[client.id] = client
        if self.enveloped:
            self.out.force(_wrap_text(client.id, "", RelayEvent.OPENED, client.device_id))

    def dismiss(self, client: RelayClient) -> None:
        if self.clients.pop(client.id, None) is not None and self.enveloped:
            self.out.force(_wrap_text(client.id, "", RelayEvent.CLOSED))

    async def from_client(self, client: RelayClient, frame: str) -> Ending | None:
        """Pass one client's frame on, waiting for room; an ending when it cannot be one. Nothing is passed on for a
        client that has been cut."""
        if size_of(frame) > self.limits.client_frame_bytes:
            return TOO_LARGE
        passed = client.header + frame if self.enveloped else upward(client.id, frame)
        if passed is not None:
            await self.out.put(passed, client.id, lambda: not client.is_cut)
        return None

    async def read(self, store: HubStore, heard: Heard) -> Ending | None:
        """Take the machine's frames until its socket closes."""
        while True:
            text = await self.receive_text(self.limits.machine_silence_s)
            if text is None:
                return None
            self.frames_heard += 1
            if self.enveloped:
                try:
                    relayed = self._relay(text)
                except MalformedRelayMessage as error:
                    logger.warning("machine %s: %s", self.environment.device_id, error)
                    return MALFORMED
                if relayed or len(text) > BARE_FRAME_LIMIT:
                    continue
            frame = parse(text) if len(text) <= BARE_FRAME_LIMIT else None
            kind = None if frame is None else frame["type"]
            if kind == "ping":
                self.last_heartbeat_at_ms = int(self._wall() * 1000)
                self.out.force(PONG)
                await _try_to_keep(store.note_contact(self.environment.connection_id, self.last_heartbeat_at_ms))
                await heard()
            elif kind == PRESENCE and frame is not None:
                await self._take_presence(frame.get("memory_synced_at"), store)
            elif not self.enveloped:
                self._fan_out(text)

    async def _take_presence(self, synced_at_s: object, store: HubStore) -> None:
        if isinstance(synced_at_s, bool) or not isinstance(synced_at_s, int | float) or not 0 < synced_at_s < LATEST_S:
            return
        # A machine whose clock is ahead would otherwise be shown as synced in the future for ever.
        at_ms = int(min(synced_at_s, self._wall()) * 1000)
        await _try_to_keep(store.note_memory_sync(self.environment.connection_id, at_ms))

    def announce(self, frame: str) -> None:
        self.out.force(frame)

    def announce_revoked(self, device_ids: Sequence[str]) -> None:
        """What these devices have left in the machine's queues is to be dropped. Only a daemon of ours understands."""
        if not self.enveloped:
            return
        for first in range(0, len(device_ids), REVOKED_AT_ONCE):
            some = list(device_ids[first : first + REVOKED_AT_ONCE])
            self.announce(json.dumps({"type": "devices_revoked", "device_ids": some}, separators=(",", ":")))

    def _relay(self, text: str) -> bool:
        """Whether the message had a header line, and so went to a client."""
        if text.find("\n", 0, HEADER_LIMIT_BYTES + 1) < 0:
            return False
        header, body = unwrap_text(text)
        client = self.clients.get(header.client)
        if client is None:
            return True
        match header.event:
            case RelayEvent.FRAME:
                client.deliver(body)
            case RelayEvent.CLOSED:
                client.cut(CLOSED_BY_MACHINE)
            case RelayEvent.OPENED:
                raise MalformedRelayMessage("only the hub opens clients")
        return True

    def _fan_out(self, text: str) -> None:
        target = downward(text, self.clients.keys())
        if target is None:
            return
        if isinstance(target, ForOne):
            client = self.clients[target.client_id]
            if target.runtime is not None and client.interest.runtimes:
                client.interest.runtimes.add(target.runtime)
            client.deliver(target.frame)
            return
        for client in self.clients.values():
            if client.interest.covers(target.runtime):
                client.deliver(text)


class Switchboard:
    """Which machine is on which socket. Presence is what stands here, nothing else."""

    def __init__(
        self,
        limits: RelayLimits,
        store: HubStore,
        is_live: Callable[[str], bool],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.limits = limits
        self._store = store
        self._is_live = is_live
        self._wall = wall
        self._machines: dict[str, MachineLink] = {}

    def machine(self, connection_id: str) -> MachineLink | None:
        return self._machines.get(connection_id)

    def replace(self, connection_id: str) -> None:
        """The lease has a new holder or is no more: whoever holds its socket is told that it was replaced."""
        earlier = self._machines.pop(connection_id, None)
        if earlier is not None:
            _end(earlier, REPLACED)

    def end_token(self, token_id: str) -> None:
        """End every socket that was opened with this token, and drop what its clients still had in the queues."""
        for link in list(self._machines.values()):
            if link.token_id == token_id:
                link.cut(REVOKED)
            for client in list(link.clients.values()):
                if client.token_id == token_id:
                    client.cut(REVOKED)
                    link.out.drop(client.id)

    def tell_of_mail(self, device_id: str) -> bool:
        """Wake the courier of this machine. Whether the machine is connected."""
        for link in self._machines.values():
            if link.environment.device_id == device_id and not link.is_cut:
                link.mail_posted.set()
                return True
        return False

    async def serve_machine(
        self,
        socket: WebSocket,
        environment: Environment,
        token_id: str,
        courier: Callable[[MachineLink], Coroutine[object, object, None]],
        heard: Heard,
    ) -> None:
        """Run one machine's accepted socket to its end, and its courier beside it."""
        link = MachineLink(socket, self.limits, environment, token_id, self._wall)
        key = environment.connection_id
        self.replace(key)
        self._machines[key] = link
        # The token may have been revoked between the gate and this moment.
        if not self._is_live(token_id):
            link.cut(REVOKED)
        beside = asyncio.create_task(courier(link))
        try:
            await self._store.note_contact(key, link.connected_at_ms, connected=True)
            # Whatever happened while it slept; the same word twice does nothing.
            link.announce_revoked(await self._store.revoked_devices())
            await link.run(link.read(self._store, heard))
        finally:
            if self._machines.get(key) is link:
                del self._machines[key]
            _end(link, MACHINE_GONE)
            beside.cancel()
            (failure,) = await asyncio.gather(beside, return_exceptions=True)
            if isinstance(failure, Exception):
                logger.error("the courier of machine %s failed: %r", environment.device_id, failure)

    async def serve_client(
        self, socket: WebSocket, machine: MachineLink, interest: Interest, caller: Principal, heard: Heard
    ) -> None:
        """Run one client's accepted socket to its end."""
        client = ClientLink(socket, self.limits, interest, caller)
        machine.admit(client)
        if not self._is_live(caller.token_id):
            client.cut(REVOKED)
        try:
            await client.run(self._read_client(client, machine, heard))
        finally:
            machine.dismiss(client)

    async def _read_client(self, client: ClientLink, machine: MachineLink, heard: Heard) -> Ending | None:
        while True:
            text = await client.receive_text()
            if text is None:
                return None
            ending = await machine.from_client(client, text)
            if ending is not None:
                return ending
            await heard()

    def announce_revoked(self, device_id: str) -> None:
        """Tell every connected machine; the others are told when they come back."""
        for link in self._machines.values():
            link.announce_revoked((device_id,))

    def announce_head(self, agent_id: str, head: str) -> None:
        """Tell every connected machine that an agent's memory has moved on the hub."""
        self._announce({"type": "memory_head", "agent_id": agent_id, "head": head})

    def announce_shared_head(self, name: str, head: str) -> None:
        """Tell every connected machine that a memory which agents share has moved on the hub."""
        self._announce({"type": "shared_memory_head", "name": name, "head": head})

    def announce_sharing(self, agent_id: str) -> None:
        """Tell every connected machine that other memories than before are attached to an agent."""
        self._announce({"type": "shared_memories_changed", "agent_id": agent_id})

    def _announce(self, word: Mapping[str, str]) -> None:
        frame = json.dumps(word, separators=(",", ":"))
        for link in self._machines.values():
            link.announce(frame)


def _end(link: MachineLink, ending: Ending) -> None:
    link.cut(ending)
    for client in list(link.clients.values()):
        client.cut(MACHINE_GONE)


async def _try_to_keep(writing: Coroutine[object, object, None]) -> None:
    try:
        await writing
    except StoreFailed as error:
        # The link works without; the moment in memory is what is shown while it is up.
        logger.warning("%s", error)
