"""A `GitHost` behind a real server on loopback, for real git clients."""

import asyncio
import base64
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn

from lodger_hub.git_host.app import Allowed, Denied, GitHost, HostLimits
from support.patience import LIMIT_S

TOKEN = "memory-token-5b1c"
READ_TOKEN = "read-token-77aa"


def basic(token: str) -> str:
    return "Basic " + base64.b64encode(f"letta:{token}".encode()).decode()


async def authorize(scope: Mapping[str, Any], agent_id: str, write: bool) -> Allowed | Denied:
    given = dict(scope["headers"]).get(b"authorization", b"").decode()
    if agent_id == "agent-foreign":
        return Denied(404)
    if given in {basic(TOKEN), f"Bearer {TOKEN}"}:
        return Allowed()
    if given == basic(READ_TOKEN):
        return Denied(403) if write else Allowed()
    return Denied(401)


@dataclass(slots=True)
class RunningHost:
    host: GitHost
    base_url: str
    moved: list[tuple[str, str]] = field(default_factory=list)
    faults: list[int] = field(default_factory=list)
    """Statuses to answer the next requests with, instead of serving them."""
    posts: int = 0

    def told(self, count: int, limit_s: float = LIMIT_S) -> list[tuple[str, str]]:
        """What was told of moved heads, once so much was: it is told after the pusher has its answer."""
        deadline = time.monotonic() + limit_s
        while len(self.moved) < count and time.monotonic() < deadline:
            threading.Event().wait(0.005)
        return self.moved

    def tidied(self, limit_s: float = LIMIT_S) -> None:
        """Wait for the upkeep that pushes have led to: it goes on after the pusher has its answer."""
        deadline = time.monotonic() + limit_s
        while self.host._tidying:
            assert time.monotonic() < deadline, "upkeep does not end"
            threading.Event().wait(0.005)

    def url(self, agent_id: str) -> str:
        return f"{self.base_url}/v1/git/{agent_id}/state.git"


@contextmanager
def running_git_host(root: Path, limits: HostLimits | None = None) -> Iterator[RunningHost]:
    moved: list[tuple[str, str]] = []

    async def on_head_moved(agent_id: str, name: str | None, head: str) -> None:
        moved.append((name or agent_id, head))

    host = GitHost(root, authorize, on_head_moved, limits)
    running = RunningHost(host, "", moved)

    async def application(scope, receive, send):  # type: ignore[no-untyped-def]
        if scope["type"] == "http" and running.faults:
            status = running.faults.pop(0)
            await send({"type": "http.response.start", "status": status, "headers": []})
            await send({"type": "http.response.body", "body": b""})
            return
        await host(scope, receive, send)

    config = uvicorn.Config(application, host="127.0.0.1", port=0, log_level="critical", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        threading.Event().wait(0.005)
    port = server.servers[0].sockets[0].getsockname()[1]
    running.base_url = f"http://127.0.0.1:{port}"
    try:
        yield running
    finally:
        server.should_exit = True
        server.force_exit = True
        thread.join(LIMIT_S)
