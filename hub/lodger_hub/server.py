"""The hub as a process: `python -m lodger_hub.server --state FOLDER`.

The first line on standard output is JSON, `{"type": "hub_listening", "url": …}`; the tokens are only in their files.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import uvicorn

from lodger_hub.access.core.lockout import Lockout
from lodger_hub.access.gate import Gate
from lodger_hub.access.tokens import prepare_tokens
from lodger_hub.api.environments import Environments
from lodger_hub.app import hub_app, routes
from lodger_hub.errors import HubError
from lodger_hub.git_host.app import Allowed, Denied, GitHost
from lodger_hub.options import DEFAULT_PORT, HubOptions
from lodger_hub.relay.switchboard import Switchboard
from lodger_hub.store.sqlite import SqliteHubStore

STOP_LIMIT_S: Final = 5
KEEPALIVE_IDLE_S: Final = 30
KEEPALIVE_INTERVAL_S: Final = 10
KEEPALIVE_PROBES: Final = 3
"""With the two above a dead path is noticed after a minute, however busy either program is."""


async def serve(options: HubOptions, ready: Callable[[str], None] | None = None) -> None:
    """Serve until SIGTERM or SIGINT, or until cancelled. `ready` gets the base URL once connections are accepted.

    Raises: UnsafeListener, StoreFailed, OSError when the address cannot be taken.
    """
    options.check()
    listener = await asyncio.to_thread(_bind, options)
    try:
        store = await SqliteHubStore.open(options.state / "hub.db")
        try:
            await _serve_on(listener, options, store, ready or print_ready)
        finally:
            await store.aclose()
    finally:
        listener.close()


def print_ready(url: str) -> None:
    """The line a program that starts a hub waits for."""
    sys.stdout.write(json.dumps({"type": "hub_listening", "url": url}) + "\n")
    sys.stdout.flush()


async def _serve_on(
    listener: socket.socket,
    options: HubOptions,
    store: SqliteHubStore,
    ready: Callable[[str], None],
) -> None:
    tokens = await prepare_tokens(store, options.state, int(time.time() * 1000))
    gate = Gate(tokens, Lockout(), store, options.public_names | {options.host.lower()}, options.secure)
    switchboard = Switchboard(options.limits, store)
    memory = _memory_host(options.state / "git", switchboard)
    table = routes(Environments(store, switchboard, options.secure), memory, gate)
    config = uvicorn.Config(
        hub_app(table, gate),
        ws="websockets-sansio",
        ws_per_message_deflate=False,
        ws_max_size=max(options.limits.machine_frame_bytes, options.limits.client_frame_bytes) + 1024,
        # Liveness is asked by the daemon's own pings and by TCP: a timed probe would cut a daemon that is merely busy.
        ws_ping_interval=None,
        http="h11",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        access_log=False,
        # A forwarded address could be invented, and the lock-out counts by address.
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=STOP_LIMIT_S,
        ssl_certfile=options.tls_certificate,
        ssl_keyfile=options.tls_key,
    )
    server = _Server(config, lambda: ready(_url(listener, options)))
    with _stopping_on_signals(server):
        serving = asyncio.create_task(server.serve([listener]))
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            # Sockets are closed in order, within the limit; then the cancellation goes on.
            server.should_exit = True
            await serving
            raise


def _memory_host(root: Path, switchboard: Switchboard) -> GitHost:
    async def authorize(_headers: Mapping[str, str], _agent_id: str, _writes: bool) -> Allowed | Denied:
        # The gate in front of the mount has admitted a machine token, and every machine may use every agent.
        return Allowed()

    async def on_head_moved(agent_id: str, head: str) -> None:
        switchboard.announce_head(agent_id, head)

    return GitHost(root, authorize, on_head_moved)


class _Server(uvicorn.Server):
    """Says when it is ready, and leaves signals to whoever owns the process."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.contextmanager
def _stopping_on_signals(server: uvicorn.Server) -> Iterator[None]:
    def stop() -> None:
        server.should_exit = True

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def _bind(options: HubOptions) -> socket.socket:
    family, _, _, _, address = socket.getaddrinfo(
        options.host, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Connections inherit these from their listener.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_KEEPIDLE"):
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S)
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S)
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_PROBES)
        listener.bind(address)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def _url(listener: socket.socket, options: HubOptions) -> str:
    port = listener.getsockname()[1]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(options.host, options.host)  # noqa: S104 - compared, not bound
    shown = f"[{host}]" if ":" in host else host
    return f"{'https' if options.secure else 'http'}://{shown}:{port}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The process's entry; returns its exit code."""
    parser = argparse.ArgumentParser(prog="lodger-hub", description="The control plane of Lodger.")
    parser.add_argument("--state", type=Path, required=True, help="private folder for the store, tokens and memory")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="0 takes a free one")
    parser.add_argument("--tls-cert", type=Path)
    parser.add_argument("--tls-key", type=Path)
    parser.add_argument("--public-name", action="append", default=[], help="a host name under which it is reached")
    chosen = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    options = HubOptions(
        state=chosen.state,
        host=chosen.host,
        port=chosen.port,
        tls_certificate=chosen.tls_cert,
        tls_key=chosen.tls_key,
        public_names=frozenset(name.lower() for name in chosen.public_name),
    )
    try:
        asyncio.run(serve(options))
    except (HubError, OSError) as error:
        sys.stderr.write(f"lodger hub: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
