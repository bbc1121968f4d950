"""What a phone, a machine and the hub's owner do at a hub over real sockets."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from lodger_protocol.relay import RelayEvent, is_enveloped, unwrap, wrap
from support.hub_rig import Hub
from support.patience import LIMIT_S

AGENT = {"agent_id": "agent-1", "conversation_id": "default"}


@contextlib.asynccontextmanager
async def http_of(hub: Hub, token: str = "", **more: Any) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    # Reading the system's certificates takes longer than everything else here, and most calls speak no TLS.
    more.setdefault("verify", False)
    async with httpx.AsyncClient(base_url=hub.url, headers=headers, trust_env=False, timeout=LIMIT_S, **more) as http:
        yield http


async def call(hub: Hub, token: str, method: str, path: str, **more: Any) -> tuple[int, Any]:
    async with http_of(hub, token) as http:
        response = await http.request(method, path, **more)
        return response.status_code, response.json()


async def paired(hub: Hub, name: str = "phone", role: str = "client") -> tuple[str, str]:
    """A new device's id and token."""
    status, made = await call(hub, hub.token("client"), "POST", "/v1/pairings", json={"role": role})
    assert status == 201, made
    status, answer = await call(hub, "", "POST", "/v1/pair", json={"code": made["code"], "name": name})
    assert status == 201, answer
    return answer["device_id"], answer["token"]


async def lease_of(hub: Hub, device_id: str = "device-1", *, enveloped: bool = True) -> str:
    """Register a machine; returns where its socket is."""
    body = {"deviceId": device_id, "connectionName": "laptop", "metadata": {"relay_envelope": enveloped}}
    status, answer = await call(hub, hub.token("machine"), "POST", "/v1/environments/register", json=body)
    assert status == 200, answer
    return str(answer["wsUrl"])


async def online(hub: Hub, device_id: str = "device-1") -> None:
    async with asyncio.timeout(LIMIT_S):
        while True:
            _, shown = await call(hub, hub.token("client"), "GET", f"/v1/environments/{device_id}")
            if shown.get("connectionId") is not None:
                return
            await asyncio.sleep(0.01)


def letter(message_id: str, text: str = "hello", **runtime: str) -> dict[str, Any]:
    message = {"role": "user", "content": text, "client_message_id": message_id}
    payload = {"kind": "create_message", "messages": [message]}
    return {"type": "input", "request_id": "mine-1", "runtime": {**AGENT, **runtime}, "payload": payload}


class Machine:
    """An enveloped machine that remembers the frames it got, and acknowledges inputs as told."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.opened: list[str] = []
        self.closed: list[str] = []
        self.frames: list[tuple[str, dict[str, Any]]] = []
        self.pings = False
        self.answer: dict[str, Any] | None = {"accepted": True, "disposition": "started"}

    def texts(self) -> list[str]:
        return [frame["payload"]["messages"][0]["content"] for _, frame in self.frames if frame["type"] == "input"]

    async def run(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            while True:
                message = await self.socket.recv(decode=False)
                if is_enveloped(message):
                    await self._take(unwrap(message))

    async def _take(self, message: Any) -> None:
        match message.header.event:
            case RelayEvent.OPENED:
                self.opened.append(message.header.client)
            case RelayEvent.CLOSED:
                self.closed.append(message.header.client)
            case RelayEvent.FRAME:
                frame = json.loads(message.body)
                self.frames.append((message.header.client, frame))
                if self.pings:
                    await self.socket.send('{"type":"ping"}')
                if frame["type"] == "input" and self.answer is not None:
                    accepted = {
                        "type": "input_accepted",
                        "request_id": frame["request_id"],
                        "runtime": frame["runtime"],
                        **self.answer,
                    }
                    await self.socket.send(wrap(message.header.client, json.dumps(accepted).encode()), text=True)


@contextlib.asynccontextmanager
async def running_machine(
    hub: Hub, device_id: str = "device-1", answer: dict[str, Any] | str | None = "accept", *, pings: bool = False
) -> AsyncIterator[Machine]:
    async with hub.machine(await lease_of(hub, device_id), device_id) as socket:
        machine = Machine(socket)
        machine.pings = pings
        if answer is None or isinstance(answer, dict):
            machine.answer = answer
        task = asyncio.create_task(machine.run())
        try:
            await online(hub, device_id)
            yield machine
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def page_socket(
    hub: Hub, machine: str, token: str, origin: str | None = None, protocols: list[str] | None = None
) -> Any:
    """As a page opens it: no header of its own, the token among the subprotocols."""
    offered = protocols if protocols is not None else ["lodger.v1", f"lodger.token.{token}"]
    return connect(
        f"{hub.url.replace('http', 'ws')}/v1/environments/{machine}/status/ws",
        subprotocols=offered,  # type: ignore[arg-type] # a NewType of str
        origin=origin or hub.url,  # type: ignore[arg-type] # a NewType of str
        compression=None,
        proxy=None,
    )


async def closing(socket: ClientConnection, limit_s: float = LIMIT_S) -> tuple[int | None, str | None]:
    """How the hub ends this socket, within the limit."""
    async with asyncio.timeout(limit_s):
        with contextlib.suppress(ConnectionClosed):
            while True:
                await socket.recv()
    return socket.close_code, socket.close_reason


async def state_of(hub: Hub, token: str, machine: str = "device-1") -> list[tuple[str, str, str | None]]:
    status, answer = await call(hub, token, "GET", f"/v1/machines/{machine}/mailbox")
    assert status == 200, answer
    return [(one["client_message_id"], one["state"], one["reason"]) for one in answer["messages"]]


async def until_settled(hub: Hub, token: str, wanted: list[tuple[str, str, str | None]]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while await state_of(hub, token) != wanted:  # noqa: ASYNC110 - asked over HTTP
            await asyncio.sleep(0.01)
