"""Opening the sockets of one link (PROTOCOL.md 1.2)."""

import asyncio
import json
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from lodger_daemon.uplink.core.retry import Failure, failure_of_status, parse_retry_after
from lodger_daemon.uplink.errors import AttemptFailed
from lodger_daemon.uplink.registration import Identity, Lease

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

OPEN_LIMIT_S: Final = 15.0
READY_LIMIT_S: Final = 30.0
INBOUND_FRAME_BYTES: Final = 17 * 1024 * 1024
"""The hub lets 16 MiB of a client through; beyond that stands its header."""
EARLY_FRAMES: Final = 256


@dataclass(frozen=True, slots=True)
class Sockets:
    control: "ClientConnection"
    stream: "ClientConnection | None" = None
    early: tuple[bytes, ...] = ()
    """Frames that came before the pair was complete, in order."""

    def abort(self) -> None:
        """End both at once, without a handshake that a dead path would never answer."""
        for socket in (self.control, self.stream):
            if socket is not None:
                socket.transport.abort()


@dataclass(frozen=True, slots=True)
class Dialler:
    identity: Identity
    token: str
    tls: ssl.SSLContext | None
    wall: Callable[[], float]
    ready_limit_s: float = READY_LIMIT_S

    async def dial(self, lease: Lease, attempt: int, generation: str) -> Sockets:
        """Open what the hub offered. Raises: AttemptFailed."""
        if not lease.split:
            return Sockets(await self._open(lease, {}))
        pairing = {"connectionGeneration": generation, "connectionAttempt": str(attempt)} if lease.paired else {}
        control = await self._open(lease, {"channel": "control", **pairing})
        stream: ClientConnection | None = None
        try:
            early = await self._ready(control, generation, attempt) if lease.paired else ()
            stream = await self._open(lease, {"channel": "stream", **pairing})
            if lease.paired:
                await self._ready(stream, generation, attempt)
        except BaseException:
            Sockets(control, stream).abort()
            raise
        return Sockets(control, stream, early)

    async def _open(self, lease: Lease, extra: dict[str, str]) -> "ClientConnection":
        # Imported at the first dial: 80 ms and 10 MB that a daemon without a hub does not need.
        from websockets.asyncio.client import connect
        from websockets.exceptions import InvalidHandshake, InvalidStatus, WebSocketException

        query = {"deviceId": self.identity.device_id, "connectionName": self.identity.connection_name, **extra}
        url = with_query(lease.socket_url, query)
        try:
            return await connect(
                url,
                additional_headers={"Authorization": f"Bearer {self.token}"},
                compression=None,
                ssl=(self.tls or True) if url.startswith("wss:") else None,
                open_timeout=OPEN_LIMIT_S,
                # Our own probes count answers; these would count time.
                ping_interval=None,
                close_timeout=2.0,
                max_size=INBOUND_FRAME_BYTES,
                proxy=None,
            )
        except InvalidStatus as error:
            status = error.response.status_code
            retry_after_s = parse_retry_after(error.response.headers.get("Retry-After"), self.wall())
            failure = failure_of_status(status)
            raise AttemptFailed(failure, f"the hub refused the socket with {status}", retry_after_s) from error
        except (InvalidHandshake, WebSocketException, ValueError) as error:
            if isinstance(error.__cause__, EOFError):
                # As a registration's: a hub or proxy that starts or stops, not somebody else.
                raise AttemptFailed(Failure.NETWORK, "the hub ended the call without an answer") from error
            raise AttemptFailed(Failure.NOT_A_HUB, f"no hub answered the socket: {error}") from error
        except ssl.SSLError as error:
            raise AttemptFailed(Failure.TLS, f"the hub's certificate was not accepted: {error}") from error
        except (OSError, EOFError, TimeoutError) as error:
            reason = str(error) or type(error).__name__
            raise AttemptFailed(Failure.NETWORK, f"the hub's socket cannot be reached: {reason}") from error

    async def _ready(self, socket: "ClientConnection", generation: str, attempt: int) -> tuple[bytes, ...]:
        """Wait for the hub's acknowledgement; what came before it."""
        from websockets.exceptions import ConnectionClosed

        early: list[bytes] = []
        try:
            async with asyncio.timeout(self.ready_limit_s):
                while True:
                    frame = await socket.recv(decode=False)
                    assert isinstance(frame, bytes)
                    verdict = is_ready(frame, generation, attempt)
                    if verdict is True:
                        return tuple(early)
                    if verdict is False or len(early) >= EARLY_FRAMES:
                        raise AttemptFailed(Failure.CLOSED, "the hub acknowledged another connection than this one")
                    early.append(frame)
        except TimeoutError as error:
            raise AttemptFailed(Failure.SILENT, "the hub did not acknowledge the connection") from error
        except ConnectionClosed as error:
            raise AttemptFailed(Failure.CLOSED, f"the hub closed the connection at once: {error}") from error


def with_query(url: str, extra: dict[str, str]) -> str:
    """`url` with these parameters, in place of same-named ones; all others stay."""
    parts = urlsplit(url)
    kept = [(name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if name not in extra]
    return urlunsplit(parts._replace(query=urlencode([*kept, *extra.items()])))


def is_ready(frame: bytes, generation: str, attempt: int) -> bool | None:
    """True for our acknowledgement, False for another's, None for any other frame."""
    if len(frame) > 1024:
        return None
    try:
        content = json.loads(frame)
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, dict) or content.get("type") != "listener_ready":
        return None
    return content.get("connection_generation") == generation and content.get("connection_attempt") == attempt
