"""The routes about shared ports: a machine's two kinds of socket, and a device's word for one browser."""

import json
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket, WebSocketDisconnect

from lodger_hub.access.gate import Gate, caller_of
from lodger_hub.api.bodies import answer
from lodger_hub.errors import RequestRefused
from lodger_hub.ports.shares import Share, Shares
from lodger_hub.waiting import until_one_ends

ENDED_CODE: Final = 1008
REFUSED_CODE: Final = 1013


@dataclass(frozen=True, slots=True)
class PortRoutes:
    """The handlers. The gate has admitted the caller before any of them runs."""

    shares: Shares
    gate: Gate

    async def machine_socket(self, socket: WebSocket) -> None:
        """One shared port, for as long as the socket is open."""
        await socket.accept()
        try:
            share = await self.shares.open(caller_of(socket).token_id, socket)
        except RequestRefused as error:
            await socket.close(REFUSED_CODE, str(error)[:100])
            return
        try:
            await socket.send_text(json.dumps({"type": "shared", "share": share.id}))
            await _until_ended(share, socket)
        except (WebSocketDisconnect, RuntimeError):
            return
        finally:
            self.shares.close(share)

    async def stream_socket(self, socket: WebSocket) -> None:
        """One connection to the program in the box."""
        await socket.accept()
        stream = self.shares.arrived(socket.path_params["stream_id"], caller_of(socket).token_id, socket)
        if stream is None:
            await socket.close(ENDED_CODE, "nobody waits for this connection")
            return
        await stream.closed.wait()
        try:
            await socket.close()
        except (WebSocketDisconnect, RuntimeError):
            return

    async def enter(self, request: Request) -> Response:
        if self.gate.public is not None and self.gate.origin(request) == self.gate.public.origin:
            raise RequestRefused(409, "not_here", "ports are not reached through the proxy in front of this hub")
        server = request.scope.get("server")
        hub_port = int(server[1]) if server is not None and server[1] is not None else 0
        port, word = self.shares.enter(request.path_params["share_id"], caller_of(request).token_id, hub_port)
        return answer({"port": port, "path": f"/.lodger/enter?word={word}"})


async def _until_ended(share: Share, socket: WebSocket) -> None:
    async def hear() -> None:
        while True:
            # A machine has nothing more to say on this socket; what it says is read so that its end is seen.
            if (await socket.receive())["type"] == "websocket.disconnect":
                return

    await until_one_ends(hear(), share.ended.wait())
    if share.ended.is_set():
        await socket.close(ENDED_CODE, "this port is shared no more")
