"""Protocol v2 for this machine: a WebSocket listener on loopback TCP and on a Unix socket (PROTOCOL.md section 2)."""

import asyncio
import contextlib
import logging
import os
import socket
import stat
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Final, assert_never

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from lodger_daemon.clients.core.admission import (
    Credential,
    House,
    LetIn,
    ShowHealth,
    ShowInfo,
    TurnAway,
    Visit,
    admit,
    is_loopback,
)
from lodger_daemon.clients.core.bodies import encode
from lodger_daemon.clients.core.lockout import Lockouts
from lodger_daemon.clients.core.socket_owner import Endpoint
from lodger_daemon.clients.errors import ClientCut, ListenRefused
from lodger_daemon.clients.info import app_server_info
from lodger_daemon.clients.peers import tcp_peer_uid, unix_peer_uid
from lodger_daemon.clients.router import Router
from lodger_daemon.clients.tokens import CapabilityToken, TokenChecker
from lodger_daemon.clock import Clock
from lodger_protocol.limits import COMMAND_LIMIT_BYTES, PAUSE_BYTES

PING_INTERVAL_S: Final = 30.0
PONG_LIMIT_S: Final = 60.0
"""A client that has answered nothing for 90 s is cut (PROTOCOL.md 2.3): 30 s to the next ping and 60 s for its pong."""

CLIENTS_LIMIT: Final = 256
"""Sockets at once: far more than one person's programs open, and few enough to stay small."""

CLOSE_LIMIT_S: Final = 2.0
"""A client's part of the closing handshake."""

HANDSHAKE_LIMIT_S: Final = 10.0

SOCKET_PATH_LIMIT_BYTES: Final = 103
"""What fits the kernel's address structure on Linux (108) and macOS (104), with its closing zero."""

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AppServerOptions:
    token: CapabilityToken | None = None
    """None: on loopback the daemon's own user comes in, nobody else."""
    on_lockout: Callable[[str, float], None] | None = None
    """Called with a source (`uid 1000`, or an address) and seconds when wrong tokens have locked it out, for the audit
    log. Must return at once."""


class AppServer:
    """Listens once started; clients that come in become connections of the router."""

    def __init__(self, router: Router, clock: Clock, options: AppServerOptions | None = None) -> None:
        """Raises: TokenFileInvalid."""
        self._router = router
        self._clock = clock
        self._options = options or AppServerOptions()
        self._checker = None if self._options.token is None else TokenChecker(self._options.token)
        self._lockouts = Lockouts()
        self._servers: list[Server] = []
        self._socket_path: Path | None = None
        self._clients = 0
        self._came = 0

    async def start_tcp(self, host: str = "127.0.0.1", port: int = 0) -> int:
        """Listen and return the port. Raises: ListenRefused, OSError when the address is taken."""
        loopback = is_loopback(host)
        if not loopback and self._checker is None:
            raise ListenRefused(
                f"{host} can be reached from other machines: listen on 127.0.0.1, or add --ws-auth capability-token "
                "with --ws-token-file or --ws-token-sha256"
            )
        server = await self._serve(partial(self._receive_tcp, host), host=host, port=port)
        bound = next(iter(server.sockets)).getsockname()
        return int(bound[1])

    async def start_unix(self, path: Path) -> None:
        """Listen on a socket that only this user can open. Raises: ListenRefused, OSError."""
        listener = await asyncio.to_thread(_bind_unix, path)
        try:
            await self._serve(self._receive_unix, unix=True, sock=listener)
        except BaseException:
            listener.close()
            raise
        self._socket_path = path

    async def aclose(self) -> None:
        """Stop listening and close every client; their accepted input stays."""
        for server in self._servers:
            server.close()
        for server in self._servers:
            await server.wait_closed()
        self._servers.clear()
        if self._socket_path is not None:
            with contextlib.suppress(FileNotFoundError):
                self._socket_path.unlink()
            self._socket_path = None

    async def _serve(
        self,
        receive: "Callable[[ServerConnection, Request], object]",
        **where: object,
    ) -> Server:
        server = await serve(
            self._attend,
            process_request=receive,  # type: ignore[arg-type]  # a coroutine function of the right shape
            compression=None,
            max_size=COMMAND_LIMIT_BYTES,
            max_queue=8,
            write_limit=PAUSE_BYTES,
            open_timeout=HANDSHAKE_LIMIT_S,
            ping_interval=PING_INTERVAL_S,
            ping_timeout=PONG_LIMIT_S,
            close_timeout=CLOSE_LIMIT_S,
            server_header=None,
            **where,  # type: ignore[arg-type]  # host and port, or a bound socket
        )
        self._servers.append(server)
        return server

    # -- admission --

    async def _receive_tcp(self, bound_host: str, client: ServerConnection, request: Request) -> Response | None:
        peer, own = _endpoint(client.remote_address), _endpoint(client.local_address)
        authorization = request.headers.get_all("Authorization")
        credential, uid = await asyncio.to_thread(self._inspect, authorization, peer, own)
        source = peer.address if uid is None else f"uid {uid}"
        locked = self._lockouts.is_locked(source, self._clock.mono())
        visit = _visit(request, credential, same_user=uid == os.geteuid())
        house = House(
            bound_host=bound_host,
            knows_tokens=self._checker is not None,
            token_required=self._checker is not None and self._checker.required,
            locked=locked,
        )
        if not locked:
            self._count(credential, source)
        return self._answer(visit, house)

    async def _receive_unix(self, client: ServerConnection, request: Request) -> Response | None:
        # A file's mode can be changed; whose process connected cannot.
        own = client.transport.get_extra_info("socket")
        if unix_peer_uid(own) != os.geteuid():
            return _plain(HTTPStatus.FORBIDDEN, "Forbidden")
        house = House(bound_host="localhost", knows_tokens=False, token_required=False, locked=False)
        return self._answer(_visit(request, Credential.ABSENT, same_user=True), house)

    def _inspect(self, authorization: list[str], peer: Endpoint, own: Endpoint) -> tuple[Credential, int | None]:
        """What the credential is worth, and whose process called, if it is one of this machine. In a thread: reads the
        token file and the kernel's tables."""
        credential = Credential.ABSENT if self._checker is None else self._checker.check(authorization)
        return credential, tcp_peer_uid(peer, own) if is_loopback(peer.address) else None

    def _count(self, credential: Credential, source: str) -> None:
        match credential:
            case Credential.WRONG | Credential.NOT_BEARER:
                locked_s = self._lockouts.failed(source, self._clock.mono())
                if locked_s is not None:
                    _LOG.warning("too many wrong tokens from %s: locked out for %.0f s", source, locked_s)
                    if self._options.on_lockout is not None:
                        self._options.on_lockout(source, locked_s)
            case Credential.GOOD:
                self._lockouts.succeeded(source)
            case Credential.ABSENT:
                pass
            case _:
                assert_never(credential)

    def _answer(self, visit: Visit, house: House) -> Response | None:
        admission = admit(visit, house)
        match admission:
            case LetIn():
                if self._clients >= CLIENTS_LIMIT:
                    return _plain(HTTPStatus.SERVICE_UNAVAILABLE, "too many clients")
                return None
            case ShowHealth():
                return _response(HTTPStatus.OK, "OK", "text/plain", b"ok\n")
            case ShowInfo():
                info = app_server_info(self._router.services.facts, "http-info")
                return _response(HTTPStatus.OK, "OK", "application/json", encode(info))
            case TurnAway(status, phrase, json_error):
                if json_error:
                    return _response(status, phrase, "application/json", encode({"error": phrase}))
                return _plain(status, phrase)
            case _:
                assert_never(admission)

    # -- clients --

    async def _attend(self, client: ServerConnection) -> None:
        label = f"app-server-{self._came}"
        self._came += 1
        self._clients += 1
        connection = self._router.open(
            partial(_send_together, client),
            label,
            local=_is_local(client),
            wire_name="app-server",
            cut=client.transport.abort,
        )
        try:
            while True:
                await connection.receive(await client.recv(decode=False))
        except (ConnectionClosed, ClientCut):
            pass
        finally:
            self._clients -= 1
            await connection.close()


async def _send_together(client: ServerConnection, frames: list[bytes]) -> None:
    """In one write: each costs the sender a call of the kernel, and the reader a turn of its loop."""
    async with client.send_context():
        for frame in frames:
            client.protocol.send_text(frame)
        client.transport.write(b"".join(client.protocol.data_to_send()))


def _visit(request: Request, credential: Credential, same_user: bool) -> Visit:
    headers = request.headers
    return Visit(
        target=request.path,
        is_upgrade=any("websocket" in value.lower() for value in headers.get_all("Upgrade")),
        has_origin="Origin" in headers,
        hosts=tuple(headers.get_all("Host")),
        credential=credential,
        same_user=same_user,
    )


def _endpoint(address: object) -> Endpoint:
    match address:
        case (str() as host, int() as port, *_):
            return Endpoint(host, port)
        case _:
            return Endpoint("0.0.0.0", 0)  # noqa: S104 - names nobody: a socket that is gone has no address


def _is_local(client: ServerConnection) -> bool:
    address = client.remote_address
    return not isinstance(address, tuple) or is_loopback(str(address[0]))


def _plain(status: HTTPStatus, phrase: str) -> Response:
    return _response(status, phrase, "text/plain", b"")


def _response(status: HTTPStatus, phrase: str, content_type: str, body: bytes) -> Response:
    headers = Headers([("Content-Type", content_type), ("Content-Length", str(len(body))), ("Connection", "close")])
    return Response(status.value, phrase, headers, body)


def _bind_unix(path: Path) -> socket.socket:
    if len(os.fsencode(path)) > SOCKET_PATH_LIMIT_BYTES:
        raise ListenRefused(f"{path} is too long for a socket: set LODGER_HOME to a shorter folder")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = path.parent.stat()
    if folder.st_uid != os.geteuid():
        raise ListenRefused(f"{path.parent} belongs to another user")
    if stat.S_IMODE(folder.st_mode) & 0o077:
        path.parent.chmod(0o700)
    _clear_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        path.chmod(0o600)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def _clear_stale(path: Path) -> None:
    """Remove the socket of a daemon that is gone; a living one keeps it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except FileNotFoundError:
            return
        except ConnectionRefusedError:
            if not path.is_socket():
                raise ListenRefused(f"{path} is in the way: it is no socket") from None
            path.unlink(missing_ok=True)
            return
        except TimeoutError:
            # Only a living listener has a full backlog.
            pass
    raise ListenRefused(f"another daemon answers at {path}")
