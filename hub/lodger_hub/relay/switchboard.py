"""The live sockets of a hub: machines, and the clients that talk to them through it."""

import json
import logging
import time
import uuid
from collections.abc import Callable
from typing import Final

from starlette.websockets import WebSocket

from lodger_hub.errors import StoreFailed
from lodger_hub.options import RelayLimits
from lodger_hub.relay.core.bare import ForOne, Interest, downward, parse, upward
from lodger_hub.relay.links import (
    CLOSED_BY_MACHINE,
    MACHINE_GONE,
    MALFORMED,
    REPLACED,
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
"""On a socket with the envelope only `ping` travels bare upwards."""
PONG: Final = '{"type":"pong"}'


def _wrap_text(client_id: str, body: str, event: RelayEvent = RelayEvent.FRAME) -> str:
    return wrap(client_id, b"", event).decode() + body


class ClientLink(SocketLink):
    """A client's socket."""

    def __init__(self, socket: WebSocket, limits: RelayLimits, interest: Interest) -> None:
        super().__init__(socket, limits)
        self.id = f"client-{uuid.uuid4()}"
        self.interest = interest
        self.header = _wrap_text(self.id, "")

    def deliver(self, frame: str) -> None:
        """Hand over one frame. A client that does not keep up is cut: it resumes from its cursor, and neither the
        machine nor the other clients wait for it."""
        if not self.is_cut and not self.out.offer(frame):
            self.cut(TOO_SLOW)


class MachineLink(SocketLink):
    """A daemon's socket."""

    def __init__(
        self, socket: WebSocket, limits: RelayLimits, environment: Environment, wall: Callable[[], float]
    ) -> None:
        super().__init__(socket, limits)
        self.environment = environment
        self.enveloped = environment.metadata.get("relay_envelope") is True
        self.clients: dict[str, ClientLink] = {}
        self._wall = wall
        self.connected_at_ms = int(wall() * 1000)
        self.last_heartbeat_at_ms = self.connected_at_ms

    def admit(self, client: ClientLink) -> None:
        self.clients[client.id] = client
        if self.enveloped:
            self.out.force(_wrap_text(client.id, "", RelayEvent.OPENED))

    def dismiss(self, client: ClientLink) -> None:
        if self.clients.pop(client.id, None) is not None and self.enveloped:
            self.out.force(_wrap_text(client.id, "", RelayEvent.CLOSED))

    async def from_client(self, client: ClientLink, frame: str) -> Ending | None:
        """Pass one client's frame on, waiting for room; an ending when it cannot be one."""
        if size_of(frame) > self.limits.client_frame_bytes:
            return TOO_LARGE
        if self.enveloped:
            await self.out.put(client.header + frame)
            return None
        renamed = upward(client.id, frame)
        if renamed is not None:
            await self.out.put(renamed)
        return None

    async def read(self, store: HubStore) -> Ending | None:
        """Take the machine's frames until its socket closes."""
        while True:
            text = await self.receive_text(self.limits.machine_silence_s)
            if text is None:
                return None
            if self.enveloped:
                try:
                    relayed = self._relay(text)
                except MalformedRelayMessage as error:
                    logger.warning("machine %s: %s", self.environment.device_id, error)
                    return MALFORMED
                if relayed or len(text) > BARE_FRAME_LIMIT:
                    continue
            frame = parse(text) if len(text) <= BARE_FRAME_LIMIT else None
            if frame is not None and frame["type"] == "ping":
                self.last_heartbeat_at_ms = int(self._wall() * 1000)
                self.out.force(PONG)
                await self._keep_heartbeat(store)
            elif not self.enveloped:
                self._fan_out(text)

    async def _keep_heartbeat(self, store: HubStore) -> None:
        try:
            await store.note_contact(self.environment.connection_id, self.last_heartbeat_at_ms)
        except StoreFailed as error:
            # The link works without; the moment in memory is what is shown while it is up.
            logger.warning("%s", error)

    def announce(self, frame: str) -> None:
        self.out.force(frame)

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

    def __init__(self, limits: RelayLimits, store: HubStore, wall: Callable[[], float] = time.time) -> None:
        self.limits = limits
        self._store = store
        self._wall = wall
        self._machines: dict[str, MachineLink] = {}

    def machine(self, connection_id: str) -> MachineLink | None:
        return self._machines.get(connection_id)

    def replace(self, connection_id: str) -> None:
        """The lease has a new holder or is no more: whoever holds its socket is told that it was replaced."""
        earlier = self._machines.pop(connection_id, None)
        if earlier is not None:
            _end(earlier, REPLACED)

    async def serve_machine(self, socket: WebSocket, environment: Environment) -> None:
        """Run one machine's accepted socket to its end."""
        link = MachineLink(socket, self.limits, environment, self._wall)
        key = environment.connection_id
        self.replace(key)
        self._machines[key] = link
        try:
            await self._store.note_contact(key, link.connected_at_ms, connected=True)
            await link.run(link.read(self._store))
        finally:
            if self._machines.get(key) is link:
                del self._machines[key]
            _end(link, MACHINE_GONE)

    async def serve_client(self, socket: WebSocket, machine: MachineLink, interest: Interest) -> None:
        """Run one client's accepted socket to its end."""
        client = ClientLink(socket, self.limits, interest)
        machine.admit(client)
        try:
            await client.run(self._read_client(client, machine))
        finally:
            machine.dismiss(client)

    async def _read_client(self, client: ClientLink, machine: MachineLink) -> Ending | None:
        while True:
            text = await client.receive_text()
            if text is None:
                return None
            ending = await machine.from_client(client, text)
            if ending is not None:
                return ending

    def announce_head(self, agent_id: str, head: str) -> None:
        """Tell every connected machine that an agent's memory has moved on the hub."""
        frame = json.dumps({"type": "memory_head", "agent_id": agent_id, "head": head}, separators=(",", ":"))
        for link in self._machines.values():
            link.announce(frame)


def _end(link: MachineLink, ending: Ending) -> None:
    link.cut(ending)
    for client in list(link.clients.values()):
        client.cut(MACHINE_GONE)
