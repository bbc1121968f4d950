"""The door in front of every route: Host and Origin, size before authentication, credentials, lock-out, headers."""

import json
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, assert_never

from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lodger_hub.access.core.credentials import Absent, AuthClass, Presented, Unusable, find_credential
from lodger_hub.access.core.hosts import PublicUrl, is_own_host, is_own_origin, own_origin
from lodger_hub.access.core.lockout import WRONG_ATTEMPTS, Lockout
from lodger_hub.access.core.sources import Network, Source, source_of_call
from lodger_hub.access.tokens import Principal, TokenBook
from lodger_hub.errors import RequestRefused
from lodger_hub.store.contract import AuditEntry, HubStore, TokenRole

logger = logging.getLogger(__name__)

PRE_AUTH_BODY_BYTES: Final = 64 * 1024
PRINCIPAL: Final = "lodger.principal"
"""Where a route finds who calls it, in its scope."""
SOURCE: Final = "lodger.source"
"""And from where."""

OVERREACHES_KEPT: Final = 1000

WRONG_THROUGH_PROXY: Final = 20 * WRONG_ATTEMPTS
"""Of all that come through one proxy: whoever can play the proxy could invent an address for each guess."""

SECURITY_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
)


def with_security_headers(own: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """A route may say something of its own about content policy and caching; everything else is the same for all."""
    headers = list(own)
    said = {name.lower() for name, _ in headers}
    return [*headers, *(header for header in SECURITY_HEADERS if header[0] not in said)]


def source_of(request: HTTPConnection) -> str:
    """The address a caller is counted by. The gate has found it before any route runs."""
    source = request.scope[SOURCE]
    assert isinstance(source, Source)
    return source.address


def caller_of(request: HTTPConnection) -> Principal:
    """Who the gate has let through to this route."""
    principal = request.scope[PRINCIPAL]
    assert isinstance(principal, Principal)
    return principal


def refusal(error: RequestRefused) -> Response:
    """JSON, because the peer's programs show the body of a failure to the person as it stands."""
    body = json.dumps({"message": error.message, "errorCode": error.code})
    return Response(body, error.status, error.headers, "application/json")


@dataclass(frozen=True, slots=True)
class Gate:
    """Decides who passes. One per hub."""

    tokens: TokenBook
    lockout: Lockout
    store: HubStore
    public_names: frozenset[str]
    public: PublicUrl | None = None
    trusted_proxies: Sequence[Network] = ()
    """Whose word about where a caller comes from is taken."""
    mono: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    _overreached: set[tuple[str, AuthClass]] = field(default_factory=set)
    _proxies: Lockout = field(default_factory=lambda: Lockout(WRONG_THROUGH_PROXY))

    def forget_proof(self, digest: bytes) -> None:
        """A revoked token proves nothing any more."""
        self.lockout.forget_proof(digest)
        self._proxies.forget_proof(digest)

    def guard(self, route: ASGIApp, needed: AuthClass) -> ASGIApp:
        """`route` for callers of class `needed` only; the caller stands in the scope as `PRINCIPAL`."""

        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            if needed is AuthClass.PUBLIC:
                await route(scope, receive, send)
                return
            try:
                principal = await self._admit(HTTPConnection(scope), needed)
            except RequestRefused as error:
                await refuse(scope, receive, send, error)
                return

            async def receive_while_live() -> Message:
                message = await receive()
                # A request that was begun with a token that has been revoked since is not carried out.
                if message["type"] == "http.request" and not self.tokens.is_live(principal.token_id):
                    return {"type": "http.disconnect"}
                return message

            scope[PRINCIPAL] = principal
            await route(scope, receive_while_live, send)

        return guarded

    def front(self, app: ASGIApp) -> ASGIApp:
        """The checks and headers that hold for every path, known or not."""

        async def fronted(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "lifespan":
                await app(scope, receive, send)
                return

            peer = HTTPConnection(scope)
            forwarded = peer.headers.getlist("x-forwarded-for")
            scope[SOURCE] = source_of_call(peer.client.host if peer.client else "", forwarded, self.trusted_proxies)

            async def send_with_headers(message: Message) -> None:
                if message["type"] in ("http.response.start", "websocket.http.response.start"):
                    message["headers"] = with_security_headers(message.get("headers", ()))
                await send(message)

            try:
                self._check_origin(HTTPConnection(scope))
            except RequestRefused as error:
                await refuse(scope, receive, send_with_headers, error)
                return
            await app(scope, receive, send_with_headers)

        return fronted

    def origin(self, request: HTTPConnection) -> str:
        """The hub's own origin, as this caller sees it."""
        secure = request.scope["scheme"] in ("https", "wss")
        return own_origin(request.headers.get("host", ""), secure=secure, public=self.public)

    def _check_origin(self, request: HTTPConnection) -> None:
        host = request.headers.get("host")
        names = self.public_names if self.public is None else self.public_names | {self.public.name}
        if not is_own_host(host, names):
            raise RequestRefused(403, "foreign_host", "this hub is not reached under that host name")
        if not is_own_origin(request.headers.get("origin"), self.origin(request)):
            raise RequestRefused(403, "foreign_origin", "pages of other sites may not use this hub")

    async def _admit(self, request: HTTPConnection, needed: AuthClass) -> Principal:
        if request.scope["type"] == "http":
            _check_declared_size(request)
        source = request.scope[SOURCE]
        now = self.mono()
        basic = needed is AuthClass.GIT
        socket = request.scope["type"] == "websocket"
        credential = find_credential(request.headers, request.query_params, basic_allowed=basic, socket=socket)
        challenge = {"WWW-Authenticate": 'Basic realm="lodger"' if basic else "Bearer"}
        match credential:
            case Absent():
                raise RequestRefused(401, "unauthenticated", "a token is needed here", challenge)
            case Unusable():
                found = None
            case Presented(digest):
                self._check_lock(source, digest, now)
                found = self.tokens.find(digest)
            case _:
                assert_never(credential)
        if found is None:
            self._check_lock(source, None, now)
            await self._count_wrong(source, now)
            raise RequestRefused(401, "unauthenticated", "the token is not valid here", challenge)
        self._note_right(source, found.digest, now)
        if not _may(found, needed):
            await self._note_overreach(found, needed, source)
            raise RequestRefused(403, "wrong_role", f"a {found.role.value} token cannot do this")
        return found

    async def _count_wrong(self, source: Source, now: float) -> None:
        closed = [source.address] if self.lockout.wrong(source.address, now) else []
        if source.through is not None and self._proxies.wrong(source.through, now):
            closed.append(f"anywhere behind {source.through}")
        for where in closed:
            await self.store.record(AuditEntry(int(self.wall() * 1000), "locked_out", where))
            logger.warning("many wrong tokens from %s: not listening to it for a while", where)

    async def _note_overreach(self, caller: Principal, needed: AuthClass, source: Source) -> None:
        """A good token used for what it is not for, such as a phone's for registering a machine. Once per token and
        class in this hub's life, so that nobody can fill the audit log."""
        met = (caller.token_id, needed)
        if met not in self._overreached and len(self._overreached) < OVERREACHES_KEPT:
            self._overreached.add(met)
            subject = f"{caller.device_id}, needed: {needed.value}"
            await self.store.record(AuditEntry(int(self.wall() * 1000), "wrong_role", source.address, subject))

    def _note_right(self, source: Source, digest: bytes, now: float) -> None:
        self.lockout.right(source.address, digest, now)
        if source.through is not None:
            self._proxies.right(source.through, digest, now)

    def _check_lock(self, source: Source, digest: bytes | None, now: float) -> None:
        wait_s = self.lockout.wait_s(source.address, digest, now)
        if source.through is not None:
            wait_s = max(wait_s, self._proxies.wait_s(source.through, digest, now))
        if wait_s > 0:
            raise RequestRefused(
                429, "locked_out", "too many wrong tokens; wait a little", {"Retry-After": str(int(wait_s) + 1)}
            )


def _may(caller: Principal, needed: AuthClass) -> bool:
    match needed:
        case AuthClass.PUBLIC | AuthClass.EITHER:
            return True
        case AuthClass.MACHINE | AuthClass.GIT:
            return caller.role is TokenRole.MACHINE
        case AuthClass.OWNER:
            return caller.is_owner
        case AuthClass.CLIENT:
            return caller.role is TokenRole.CLIENT
        case _:
            assert_never(needed)


def _check_declared_size(request: HTTPConnection) -> None:
    """A body is read only after authentication; a caller who announces a large one without any is told at once."""
    length = request.headers.get("content-length", "0")
    known = "authorization" in request.headers
    if not known and (not length.isdecimal() or int(length) > PRE_AUTH_BODY_BYTES):
        raise RequestRefused(413, "too_large", "the request is too large")


async def refuse(scope: Scope, receive: Receive, send: Send, error: RequestRefused) -> None:
    """Answer in the way of this scope: a WebSocket is refused before it is opened."""
    response = refusal(error)
    if scope["type"] == "http":
        # What the caller still wants to send is not read, so the connection cannot serve another request.
        response.headers["connection"] = "close"
    await response(scope, receive, send)
