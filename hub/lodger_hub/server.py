"""The hub as a process: `python -m lodger_hub.server --state FOLDER`.

The first line on standard output is JSON, `{"type": "hub_listening", "url": …, "pages": […], "fingerprint": …}`; the
tokens are only in their files.
"""

import argparse
import asyncio
import contextlib
import datetime
import json
import logging
import resource
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, assert_never

import uvicorn
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Scope

from lodger_hub.access.core.hosts import PublicUrl, is_own_host, public_url
from lodger_hub.access.core.lockout import Lockout
from lodger_hub.access.core.sources import LOOPBACK, Network, networks
from lodger_hub.access.devices import Devices
from lodger_hub.access.gate import Gate, caller_of
from lodger_hub.access.tokens import prepare_tokens
from lodger_hub.api.devices import DeviceRoutes
from lodger_hub.api.environments import Environments
from lodger_hub.api.mailbox import MailboxRoutes
from lodger_hub.api.ports import PortRoutes
from lodger_hub.api.repositories import RepositoryRoutes
from lodger_hub.app import Handlers, hub_app, routes
from lodger_hub.errors import BadAddress, HubError
from lodger_hub.git_host.app import Allowed, Denied, GitHost
from lodger_hub.git_host.grants import FILE_NAME, Grants, Right
from lodger_hub.lan.certificate import LanCertificate, lan_addresses, prepare_certificate
from lodger_hub.mailbox.courier import Courier
from lodger_hub.open_sockets import OpenSockets
from lodger_hub.options import DEFAULT_PORT, HubOptions, LanListener, is_loopback
from lodger_hub.ownership import take_state
from lodger_hub.pages.site import Site
from lodger_hub.ports.door import Listening
from lodger_hub.ports.shares import Shares
from lodger_hub.reach import Place, Reach, ReachKind
from lodger_hub.relay.switchboard import Switchboard
from lodger_hub.sockets import EndingSocket, PromptHttp
from lodger_hub.store.contract import HubStore
from lodger_hub.store.sqlite import SqliteHubStore

STOP_LIMIT_S: Final = 5
DESCRIPTORS: Final = 16_384
KEEPALIVE_IDLE_S: Final = 30
KEEPALIVE_INTERVAL_S: Final = 10
KEEPALIVE_PROBES: Final = 3
"""With the two above a dead path is noticed after a minute, however busy either program is."""


async def serve(options: HubOptions, ready: Callable[[Reach], None] | None = None) -> None:
    """Serve until SIGTERM or SIGINT, or until cancelled. `ready` gets the addresses once connections are accepted.

    Raises: UnsafeListener, BadAddress, StateInUse, CertificateFailed, StoreFailed; OSError when an address cannot be
    taken.
    """
    options.check()
    public = _public(options)
    _raise_descriptor_limit()
    certificate = await asyncio.to_thread(_lan_certificate, options)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(await asyncio.to_thread(take_state, options.state))
        listener = await asyncio.to_thread(_bind, options.host, options.port)
        stack.callback(listener.close)
        lan = None if options.lan is None else await asyncio.to_thread(_bind_lan, options.lan, listener)
        if lan is not None:
            stack.callback(lan.close)
        store = await SqliteHubStore.open(options.state / "hub.db")
        stack.push_async_callback(store.aclose)
        reach = _reach(options, public, listener, lan, certificate)
        taken = [(listener, options.tls_certificate, options.tls_key)]
        if lan is not None and certificate is not None:
            taken.append((lan, certificate.certificate, certificate.key))
        places = [_listening(one, cert, key) for one, cert, key in taken]
        app = await _application(options, store, public, reach, places, stack)
        configs = [(one, _config(app, options, cert, key)) for one, cert, key in taken]
        await _serve_on(configs, lambda: (ready or print_ready)(reach))


def print_ready(reach: Reach) -> None:
    """The line a program that starts a hub waits for."""
    sys.stdout.write(json.dumps(ready_line(reach)) + "\n")
    sys.stdout.flush()


def ready_line(reach: Reach) -> dict[str, object]:
    return {
        "type": "hub_listening",
        "url": reach.url,
        "pages": [{"reach": place.kind.value, "url": place.url} for place in reach.places],
        "fingerprint": reach.fingerprint,
    }


async def _application(
    options: HubOptions,
    store: HubStore,
    public: PublicUrl | None,
    reach: Reach,
    listening: Sequence[Listening],
    stack: contextlib.AsyncExitStack,
) -> ASGIApp:
    """Every room of the hub, put together; what has to be ended is put on the stack."""
    book = await prepare_tokens(store, options.state, int(time.time() * 1000))
    lockout = Lockout()
    names = options.public_names | {options.host.lower(), *_lan_names(options)}
    gate = Gate(book, lockout, store, names, public, _trusted_proxies(options))
    switchboard = Switchboard(options.limits, store, book.is_live)
    shares = Shares(listening, lambda host: is_own_host(host, names), book.is_live)
    stack.callback(shares.close_all)
    devices = Devices(store, book, gate, OpenSockets(switchboard, shares), options.state)
    courier = Courier(store, book.has_device, options.mail)
    memories = _memory_host(options.state, switchboard)
    stack.push_async_callback(memories.aclose)
    handlers = Handlers(
        Environments(store, switchboard, gate, devices, courier),
        DeviceRoutes(devices, lambda: reach),
        MailboxRoutes(store, switchboard, options.mail),
        await asyncio.to_thread(Site),
        memories,
        RepositoryRoutes(memories, switchboard.announce_sharing),
        PortRoutes(shares, gate),
    )
    return hub_app(routes(handlers, gate), gate)


def _listening(listener: socket.socket, certificate: Path | None, key: Path | None) -> Listening:
    """For what listens beside it, with the same certificate. Raises: OSError."""
    tls = None
    if certificate is not None:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(certificate, key)
    host, port, *_ = listener.getsockname()
    return Listening(str(host), int(port), tls)


def _config(app: ASGIApp, options: HubOptions, certificate: Path | None, key: Path | None) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        ws=EndingSocket,
        ws_per_message_deflate=False,
        ws_max_size=max(options.limits.machine_frame_bytes, options.limits.client_frame_bytes) + 1024,
        # Liveness is asked by the daemon's own pings and by TCP: a timed probe would cut a daemon that is merely busy.
        ws_ping_interval=None,
        http=PromptHttp,
        loop="asyncio",
        lifespan="off",
        log_config=None,
        access_log=False,
        # A forwarded address could be invented, and the lock-out counts by address: the gate looks at who says it.
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=STOP_LIMIT_S,
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )


async def _serve_on(listeners: Sequence[tuple[socket.socket, uvicorn.Config]], ready: Callable[[], None]) -> None:
    missing = len(listeners)

    def one_more() -> None:
        nonlocal missing
        missing -= 1
        if missing == 0:
            ready()

    servers = [_Server(config, one_more) for _, config in listeners]
    with _stopping_on_signals(servers):
        serving = [
            asyncio.create_task(server.serve([listener]))
            for server, (listener, _) in zip(servers, listeners, strict=True)
        ]
        try:
            await asyncio.shield(asyncio.gather(*serving))
        finally:
            # Cancelled, or one of them failed: sockets are closed in order, within the limit, before the store is.
            for server in servers:
                server.should_exit = True
            await asyncio.wait(serving)


def _raise_descriptor_limit() -> None:
    """Each machine and client is a descriptor, and the usual soft limit is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _public(options: HubOptions) -> PublicUrl | None:
    if options.public_url is None:
        return None
    try:
        return public_url(options.public_url)
    except ValueError as error:
        raise BadAddress(str(error)) from error


def _trusted_proxies(options: HubOptions) -> tuple[Network, ...]:
    """Raises: BadAddress."""
    try:
        named = networks(options.trusted_proxies)
    except ValueError as error:
        raise BadAddress(str(error)) from error
    if options.public_url is not None:
        return (*LOOPBACK, *named)
    if named:
        raise BadAddress("a trusted proxy needs the address under which it shows the hub: --public-url")
    return ()


def _lan_certificate(options: HubOptions) -> LanCertificate | None:
    lan = options.lan
    if lan is None:
        return None
    if lan.certificate is not None and lan.key is not None:
        return LanCertificate(lan.certificate, lan.key, "")
    now = datetime.datetime.now(datetime.UTC)
    return prepare_certificate(options.state / "tls", lan_addresses(), socket.gethostname(), now)


def _lan_names(options: HubOptions) -> frozenset[str]:
    if options.lan is None:
        return frozenset()
    name = socket.gethostname().lower()
    return frozenset({name, f"{name.removesuffix('.local')}.local"})


def _memory_host(state: Path, switchboard: Switchboard) -> GitHost:
    grants = Grants(state / FILE_NAME)

    async def authorize(scope: Scope, agent_id: str, writes: bool) -> Allowed | Denied:
        # The gate in front has found whose token it is.
        caller = caller_of(HTTPConnection(scope))
        match await asyncio.to_thread(grants.right, caller.device_id, agent_id):
            case Right.WRITE:
                return Allowed()
            case Right.READ:
                return Denied(403) if writes else Allowed()
            case Right.NONE:
                return Denied(404)
            case other:
                assert_never(other)

    async def on_head_moved(agent_id: str, name: str | None, head: str) -> None:
        if name is None:
            switchboard.announce_head(agent_id, head)
        else:
            switchboard.announce_shared_head(name, head)

    return GitHost(state / "git", authorize, on_head_moved)


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
def _stopping_on_signals(servers: Sequence[uvicorn.Server]) -> Iterator[None]:
    def stop() -> None:
        for server in servers:
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


def _bind_lan(lan: LanListener, first: socket.socket) -> socket.socket:
    port = int(first.getsockname()[1]) + 1 if lan.port is None else lan.port
    try:
        return _bind(lan.host, port)
    except OSError as error:
        words = f"port {port} on {lan.host} cannot be used ({error.strerror}); --lan-port names another"
        raise BadAddress(words) from error


def _bind(host: str, port: int) -> socket.socket:
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
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
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # Keep-alive asks nothing while something sent is unanswered; without this that takes a quarter of an hour.
            patience_s = KEEPALIVE_IDLE_S + KEEPALIVE_PROBES * KEEPALIVE_INTERVAL_S
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, patience_s * 1000)
        listener.bind(address)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def _reach(
    options: HubOptions,
    public: PublicUrl | None,
    listener: socket.socket,
    lan: socket.socket | None,
    certificate: LanCertificate | None,
) -> Reach:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(options.host, options.host)  # noqa: S104 - compared, not bound
    url = _url("https" if options.secure else "http", host, listener)
    places = [] if public is None else [Place(ReachKind.PUBLIC, public.origin)]
    if lan is not None and options.lan is not None:
        everywhere = options.lan.host in ("0.0.0.0", "::")  # noqa: S104 - compared, not bound
        hosts = lan_addresses() if everywhere else (options.lan.host,)
        places += [Place(ReachKind.LAN, _url("https", one, lan)) for one in hosts if lan.family is _family(one)]
    if not is_loopback(host):
        places.append(Place(ReachKind.LAN, url))
    else:
        places.append(Place(ReachKind.MACHINE, url))
    made = certificate.fingerprint if certificate is not None else ""
    return Reach(url, tuple(places), made or None)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _url(scheme: str, host: str, listener: socket.socket) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}:{listener.getsockname()[1]}"


def main(arguments: Sequence[str] | None = None) -> int:
    """The process's entry; returns its exit code."""
    parser = argparse.ArgumentParser(prog="lodger-hub", description="The control plane of Lodger.")
    parser.add_argument("--state", type=Path, required=True, help="private folder for the store, tokens and memory")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="0 takes a free one")
    parser.add_argument("--tls-cert", type=Path)
    parser.add_argument("--tls-key", type=Path)
    parser.add_argument("--public-name", action="append", default=[], help="a host name under which it is reached")
    parser.add_argument("--public-url", help="where a proxy with a certificate shows this hub")
    parser.add_argument("--trusted-proxy", action="append", default=[], help="a proxy on another machine")
    parser.add_argument("--lan", action="store_true", help="also listen with TLS for the home network")
    chosen = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    options = HubOptions(
        state=chosen.state,
        host=chosen.host,
        port=chosen.port,
        tls_certificate=chosen.tls_cert,
        tls_key=chosen.tls_key,
        public_names=frozenset(name.lower() for name in chosen.public_name),
        public_url=chosen.public_url,
        trusted_proxies=tuple(chosen.trusted_proxy),
        lan=LanListener() if chosen.lan else None,
    )
    try:
        asyncio.run(serve(options))
    except (HubError, OSError) as error:
        sys.stderr.write(f"lodger hub: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
