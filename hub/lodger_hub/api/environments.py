"""The routes about machines: registration, the list, and the two kinds of socket."""

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, assert_never

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.websockets import WebSocket

from lodger_hub.access.core.credentials import SUBPROTOCOL, offered_subprotocols
from lodger_hub.access.devices import Devices
from lodger_hub.access.gate import Gate, caller_of, refusal, source_of
from lodger_hub.access.tokens import own_device_id
from lodger_hub.api.bodies import RegisterBody, answer, environment_answer, parse_body, read_body
from lodger_hub.errors import RequestRefused
from lodger_hub.mailbox.courier import Courier
from lodger_hub.relay.core.bare import Interest
from lodger_hub.relay.links import UNKNOWN_LEASE
from lodger_hub.relay.switchboard import MachineLink, Switchboard
from lodger_hub.store.contract import (
    Bond,
    Environment,
    HubStore,
    MachineTaken,
    Registration,
    TokenRole,
    TokenTaken,
)

PAGE_LIMIT: Final = 200
PAGE_DEFAULT: Final = 50


@dataclass(frozen=True, slots=True)
class Environments:
    """The handlers. The gate has admitted the caller before any of them runs."""

    store: HubStore
    switchboard: Switchboard
    gate: Gate
    devices: Devices
    courier: Courier
    wall: Callable[[], float] = time.time

    async def register(self, request: Request) -> Response:
        body = parse_body(RegisterBody, await read_body(request), "invalid_registration")
        caller = caller_of(request)
        earlier = await self.store.by_device(body.device_id)
        # No `conn-` in front: with it the peer's daemon expects ownership routes (CONTROL-PLANE-REST.md section 2).
        connection_id = f"env-{uuid.uuid4().hex}"
        # The hub's own token is in a file that its person may copy to several machines.
        bond = Bond(caller.device_id, one_machine=caller.device_id != own_device_id(TokenRole.MACHINE))
        wanted = Registration(
            body.device_id, body.connection_name, body.listener_instance_id, body.metadata, connection_id, bond
        )
        environment = await self.store.register(wanted, int(self.wall() * 1000))
        if not isinstance(environment, Environment):
            await self.devices.note_refused_machine(body.device_id, caller, source_of(request))
            raise _refused(environment, body)
        if earlier is not None:
            self.switchboard.replace(earlier.connection_id)
        base = self.gate.origin(request).replace("http", "ws", 1)
        offer: dict[str, object] = {
            "connectionId": environment.connection_id,
            "wsUrl": f"{base}/v1/environments/ws?connectionId={connection_id}",
        }
        if body.metadata.get("relay_envelope") is True:
            offer["relayEnvelope"] = True
        return answer(offer)

    async def release(self, request: Request) -> Response:
        """The next token that registers this machine has it."""
        machine_id = request.path_params["device_id"]
        if not await self.store.release(machine_id):
            raise RequestRefused(404, "unknown_machine", "no machine has registered under that device id")
        await self.devices.note_released_machine(machine_id, source_of(request))
        return answer({"released": True})

    async def list(self, request: Request) -> Response:
        limit = _limit(request)
        only_online = request.query_params.get("onlineOnly") == "true"
        after = request.query_params.get("after")
        shown: list[dict[str, object]] = []
        more = True
        while more and len(shown) <= limit:
            page = await self.store.environments(PAGE_LIMIT, after)
            more = len(page) == PAGE_LIMIT
            for environment in page:
                after = environment.id
                if not only_online or self._link(environment) is not None:
                    shown.append(self._show(environment))
        return answer({"connections": shown[:limit], "hasNextPage": len(shown) > limit})

    async def one(self, request: Request) -> Response:
        environment = await self.store.by_device(request.path_params["device_id"])
        if environment is None:
            raise RequestRefused(404, "unknown_machine", "no machine has registered under that device id")
        return answer(self._show(environment))

    async def machine_socket(self, socket: WebSocket) -> None:
        """A lease that is not known ends with 1008, which sends the daemon to register again."""
        query = socket.query_params
        environment = await self.store.by_connection(query.get("connectionId", ""))
        await socket.accept(_subprotocol(socket))
        caller = caller_of(socket)
        if (
            environment is None
            or query.get("deviceId") != environment.device_id
            or environment.bound_to not in (None, caller.device_id)
        ):
            await socket.close(UNKNOWN_LEASE.code, UNKNOWN_LEASE.reason)
            return
        heard = partial(self.devices.note_seen, caller.device_id)
        await heard()
        await self.switchboard.serve_machine(socket, environment, caller.token_id, self.courier.serve, heard)
        await heard()

    async def client_socket(self, socket: WebSocket) -> None:
        """Named by connection id, or by device id, which a client need not look up again after a reconnect."""
        try:
            machine = await self._connected(socket.path_params["connection_id"])
        except RequestRefused as error:
            await socket.send_denial_response(refusal(error))
            return
        caller = caller_of(socket)
        await socket.accept(_subprotocol(socket))
        heard = partial(self.devices.note_seen, caller.device_id)
        await heard()
        await self.switchboard.serve_client(socket, machine, _interest(socket), caller, heard)
        await heard()

    async def _connected(self, name: str) -> MachineLink:
        link = self.switchboard.machine(name)
        if link is None:
            environment = await self.store.by_connection(name) or await self.store.by_device(name)
            if environment is None:
                raise RequestRefused(404, "unknown_machine", "no machine has that connection id")
            link = self._link(environment)
        if link is None or link.is_cut:
            raise RequestRefused(503, "machine_offline", "the machine is not connected", {"Retry-After": "2"})
        if len(link.clients) >= link.limits.clients_per_machine:
            raise RequestRefused(429, "too_many_clients", "too many clients of this machine", {"Retry-After": "10"})
        return link

    def _link(self, environment: Environment) -> MachineLink | None:
        return self.switchboard.machine(environment.connection_id)

    def _show(self, environment: Environment) -> dict[str, object]:
        link = self._link(environment)
        heartbeat = environment.last_heartbeat_at_ms if link is None else link.last_heartbeat_at_ms
        return environment_answer(
            environment, connected=link is not None, last_heartbeat_at_ms=heartbeat, now_ms=int(self.wall() * 1000)
        )


def _refused(taken: MachineTaken | TokenTaken, body: RegisterBody) -> RequestRefused:
    """The words are what the machine's status shows."""
    match taken:
        case MachineTaken(owner):
            return RequestRefused(
                409,
                "machine_taken",
                f"the machine id {body.device_id} belongs to another token ({owner}). If this machine is to have it: "
                f"`lodger devices release {body.device_id}` on the hub's machine. If this is a copy of another "
                "machine's files: delete `device-id` in its state folder",
            )
        case TokenTaken(machine_id, machine_name):
            return RequestRefused(
                409,
                "token_taken",
                f"this token belongs to the machine {machine_name} ({machine_id}). Give this one a token of its own: "
                "`lodger pair --machine` on the hub's machine, then `lodger join` here; or, in place of the other, "
                f"`lodger devices release {machine_id}` on the hub's machine",
            )
        case _:
            assert_never(taken)


def _subprotocol(socket: WebSocket) -> str | None:
    """A browser that offered some ends the socket unless one of them is chosen; the token is never sent back."""
    return SUBPROTOCOL if SUBPROTOCOL in offered_subprotocols(socket.headers) else None


def _interest(request: HTTPConnection) -> Interest:
    agent_id = request.query_params.get("agentId")
    conversation_id = request.query_params.get("conversationId")
    if not agent_id:
        return Interest()
    return Interest({(agent_id, conversation_id or "default")})


def _limit(request: Request) -> int:
    asked = request.query_params.get("limit", str(PAGE_DEFAULT))
    if not asked.isdecimal() or len(asked) > len(str(PAGE_LIMIT)) or not 1 <= int(asked) <= PAGE_LIMIT:
        raise RequestRefused(400, "invalid_limit", f"limit is a number from 1 to {PAGE_LIMIT}")
    return int(asked)
