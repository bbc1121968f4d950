"""A hostile web application in a real box, shared through a real hub, and a browser that sends what a test wants."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h11

from lodger_daemon.ports.sharing import HubAddress, HubShares
from lodger_daemon.uplink.registration import make_tls
from support.hub_calls import call
from support.hub_rig import Hub, running_hub
from support.patience import LIMIT_S
from support.port_room import PortRoom, port_room, server_port

PORT = server_port()
APP = """
import base64, hashlib, json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ODD = {
    "/endless": b"HTTP/1.1 200 OK\\r\\n",
    "/garbage": b"\\x00\\x01 what\\r\\n\\r\\n",
    "/switch": b"HTTP/1.1 101 Now\\r\\nConnection: Upgrade\\r\\nUpgrade: websocket\\r\\n\\r\\n",
    "/two-lengths": b"HTTP/1.1 200 OK\\r\\nContent-Length: 1\\r\\nContent-Length: 9\\r\\n\\r\\n1",
    "/split": b"HTTP/1.1 200 OK\\r\\nA: b\\nSet-Cookie: lodger_port_1=x\\r\\n\\r\\n",
}

class App(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.headers.get("Upgrade") == "websocket":
            return self.web_socket()
        if self.path == "/big":
            self.send_response(200)
            self.send_header("Content-Length", str(100 * 2**20))
            self.end_headers()
            for count in range(100):
                self.wfile.write(b"x" * 2**20)
                open("sent", "w").write(str(count + 1))
            return
        if self.path in ODD:
            self.close_connection = True
            self.wfile.write(ODD[self.path])
            while self.path == "/endless":
                self.wfile.write(b"X: y\\r\\n" * 1000)
            return
        length = int(self.headers.get("Content-Length") or 0)
        got = 0
        while got < length:
            got += len(self.rfile.read(min(65536, length - got)))
        body = json.dumps({"path": self.path, "headers": self.headers.items(), "got": got}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Set-Cookie", "theme=dark; Path=/")
        self.send_header("Set-Cookie", "lodger_port_%s=stolen; Path=/" % self.headers["Host"].rpartition(":")[2])
        self.send_header("Strict-Transport-Security", "max-age=99999999")
        self.send_header("Clear-Site-Data", '"*"')
        self.send_header("Connection", "keep-alive")
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def web_socket(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        self.wfile.write(bytes([0x81, 5]) + b"hello")
        self.wfile.flush()
        self.rfile.read(2)
        self.close_connection = True

ThreadingHTTPServer(("127.0.0.1", PORT), App).serve_forever()
"""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def seen(self, name: str) -> list[str]:
        """What the application in the box was given."""
        return [value for key, value in self.json["headers"] if key.lower() == name]


@dataclass
class SharedPort:
    hub: Hub
    room: PortRoom
    shares: HubShares
    share: str
    cookies: dict[str, str] = field(default_factory=dict)
    port: int = 0

    async def entry(self, token: str = "") -> tuple[int, Any]:
        return await call(self.hub, token or self.hub.token("client"), "POST", f"/v1/ports/{self.share}/entries")

    async def let_in(self, token: str = "") -> Answer:
        """As the page's click does it."""
        status, entry = await self.entry(token)
        assert status == 200, entry
        self.port = entry["port"]
        answer = await self.ask(entry["path"])
        if answer.status == 303:
            name, _, value = answer.all("set-cookie")[0].partition(";")[0].partition("=")
            self.cookies[name] = value
        return answer

    async def ask(
        self,
        path: str = "/",
        headers: dict[str, str] | None = None,
        *,
        method: str = "GET",
        body: bytes = b"",
        cookies: dict[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> Answer:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=tls)
        client = h11.Connection(h11.CLIENT)
        shown = self.cookies if cookies is None else cookies
        sent = {"Host": f"127.0.0.1:{self.port}", "Content-Length": str(len(body)), **(headers or {})}
        if shown:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in shown.items())
        request = h11.Request(method=method, target=path, headers=list(sent.items()))
        writer.write((client.send(request) or b"") + (client.send(h11.Data(data=body)) or b""))
        client.send(h11.EndOfMessage())
        answer: h11.Response | None = None
        whole = bytearray()
        try:
            async with asyncio.timeout(LIMIT_S):
                while True:
                    event = client.next_event()
                    match event:
                        case h11.Response():
                            answer = event
                        case h11.Data():
                            whole += event.data
                        case h11.EndOfMessage() | h11.ConnectionClosed():
                            break
                        case _:
                            client.receive_data(await reader.read(2**16))
        finally:
            writer.transport.abort()
        assert answer is not None
        names = [(name.decode(), value.decode()) for name, value in answer.headers]
        return Answer(answer.status_code, names, bytes(whole))


def address(hub: Hub) -> HubAddress:
    async def token() -> str:
        return hub.token("machine")

    return HubAddress(hub.url, token, lambda: make_tls(None))


@asynccontextmanager
async def shared_port(tmp_path: Path, workspace: Path, **options: Any) -> AsyncIterator[SharedPort]:
    (workspace / "app.py").write_text(APP.replace("PORT", str(PORT)))
    async with running_hub(tmp_path / "hub", **options) as hub, port_room(tmp_path, workspace) as room:
        await room.serve("exec python3 app.py", PORT)
        await room.allowed(PORT)
        shares = HubShares(room.ports, address(hub))
        try:
            name = await shares.share(room.ports.listed()[0].box, PORT)
            yield SharedPort(hub, room, shares, name)
        finally:
            await shares.aclose()
