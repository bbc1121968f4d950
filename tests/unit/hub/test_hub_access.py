"""Who gets in: every route by its class, and the attacks of ATTACKS.md W2 to W12 on the hub's door."""

import base64
import contextlib
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Mount, Route, WebSocketRoute

from lodger_hub.access.core.credentials import Absent, AuthClass, Presented, Unusable, digest_of, find_credential
from lodger_hub.access.core.hosts import PublicUrl, is_own_host, is_own_origin, own_origin, public_url
from lodger_hub.access.core.lockout import LOCK_S, SOURCES_KEPT, WINDOW_S, WRONG_ATTEMPTS, Lockout
from lodger_hub.access.devices import Devices, Paired
from lodger_hub.access.gate import Gate
from lodger_hub.access.tokens import TokenBook, prepare_tokens
from lodger_hub.api.devices import DeviceRoutes
from lodger_hub.api.environments import Environments
from lodger_hub.api.mailbox import MailboxRoutes
from lodger_hub.api.ports import PortRoutes
from lodger_hub.api.repositories import RepositoryRoutes
from lodger_hub.app import Handlers, hub_app, routes
from lodger_hub.git_host.app import Allowed, GitHost
from lodger_hub.mailbox.courier import Courier
from lodger_hub.options import RelayLimits
from lodger_hub.pages.site import Site
from lodger_hub.ports.shares import Shares
from lodger_hub.reach import Reach
from lodger_hub.relay.switchboard import Switchboard
from lodger_hub.store.contract import TokenRole
from lodger_hub.store.sqlite import SqliteHubStore

EXPECTED = {
    ("GET", "/healthz"): AuthClass.PUBLIC,
    ("POST", "/v1/environments/register"): AuthClass.MACHINE,
    ("GET", "/v1/environments"): AuthClass.EITHER,
    ("GET", "/v1/environments/{device_id}"): AuthClass.EITHER,
    ("GET", "/v1/agents"): AuthClass.EITHER,
    ("GET", "/v1/agents/{agent_id}/repositories"): AuthClass.EITHER,
    ("GET", "/v1/repositories"): AuthClass.CLIENT,
    ("POST", "/v1/repositories"): AuthClass.CLIENT,
    ("DELETE", "/v1/repositories/{name}"): AuthClass.OWNER,
    ("POST", "/v1/repositories/{name}/restore"): AuthClass.OWNER,
    ("PUT", "/v1/repositories/{name}/agents/{agent_id}"): AuthClass.CLIENT,
    ("DELETE", "/v1/repositories/{name}/agents/{agent_id}"): AuthClass.CLIENT,
    ("POST", "/v1/pairings"): AuthClass.OWNER,
    ("POST", "/v1/pair"): AuthClass.PUBLIC,
    ("GET", "/v1/devices"): AuthClass.CLIENT,
    ("DELETE", "/v1/devices/{device_id}"): AuthClass.CLIENT,
    ("POST", "/v1/devices/{device_id}/rotate"): AuthClass.CLIENT,
    ("POST", "/v1/machines/{device_id}/mailbox"): AuthClass.CLIENT,
    ("POST", "/v1/machines/{device_id}/release"): AuthClass.OWNER,
    ("GET", "/v1/machines/{device_id}/mailbox"): AuthClass.CLIENT,
    ("DELETE", "/v1/machines/{device_id}/mailbox/{client_message_id}"): AuthClass.CLIENT,
    ("POST", "/v1/ports/{share_id}/entries"): AuthClass.CLIENT,
    ("GET", ""): AuthClass.PUBLIC,
    ("GET", "/{path:path}"): AuthClass.PUBLIC,
    ("WS", "/v1/environments/ws"): AuthClass.MACHINE,
    ("WS", "/v1/environments/{connection_id}/status/ws"): AuthClass.CLIENT,
    ("WS", "/v1/ports/ws"): AuthClass.MACHINE,
    ("WS", "/v1/ports/streams/{stream_id}/ws"): AuthClass.MACHINE,
    ("*", "/v1/git"): AuthClass.GIT,
}
ROLES = {
    AuthClass.PUBLIC: {"none", "machine", "client", "phone"},
    AuthClass.MACHINE: {"machine"},
    AuthClass.GIT: {"machine"},
    AuthClass.CLIENT: {"client", "phone"},
    AuthClass.OWNER: {"client"},
    AuthClass.EITHER: {"machine", "client", "phone"},
}


class Door:
    """The hub's application, called as a server calls it, with a clock that stands still."""

    def __init__(self, store: SqliteHubStore, tokens: TokenBook, state: Path) -> None:
        self.now = 1000.0
        self.store = store
        self.state = state
        lockout = Lockout()
        gate = Gate(tokens, lockout, store, frozenset({"hub.example"}), mono=lambda: self.now)
        board = Switchboard(RelayLimits(), store, tokens.is_live)
        self.devices = Devices(store, tokens, lockout, board, state, mono=lambda: self.now)

        async def allow(*_: object) -> Allowed:
            return Allowed()

        async def ignore(*_: object) -> None:
            pass

        memory = GitHost(state / "git", allow, ignore)
        handlers = Handlers(
            Environments(store, board, gate, self.devices, Courier(store, tokens.has_device)),
            DeviceRoutes(self.devices, lambda: Reach("http://127.0.0.1:7433", ())),
            MailboxRoutes(store, board),
            Site(state / "page"),
            memory,
            RepositoryRoutes(memory, lambda _: None),
            PortRoutes(Shares((), lambda _: True, tokens.is_live), gate),
        )
        self.table = routes(handlers, gate)
        self.app = hub_app(self.table, gate)
        self.phone_token = ""

    async def pair(self, name: str = "phone") -> Paired:
        made = await self.devices.make_code("127.0.0.1")
        paired = await self.devices.pair(made.code, name, "127.0.0.1")
        self.phone_token = paired.token
        return paired

    def token(self, role: str) -> str:
        return self.phone_token if role == "phone" else (self.state / f"{role}.token").read_text().strip()

    async def ask(
        self,
        path: str,
        method: str = "GET",
        headers: dict[str, str] | None = None,
        query: str = "",
        kind: str = "http",
        source: str = "127.0.0.1",
        body: bytes = b"",
    ) -> tuple[int, dict[str, str], Any]:
        sent: list[dict[str, Any]] = []
        first = {"type": "websocket.connect"} if kind == "websocket" else {"type": "http.request", "body": body}
        inbox = [first, {"type": f"{kind}.disconnect", "code": 1006}]

        async def receive() -> Any:
            return inbox.pop(0)

        async def send(message: Any) -> None:
            sent.append(message)

        given = {"host": "127.0.0.1:7433", **(headers or {})}
        scope = {
            "type": kind,
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
            "client": (source, 50000),
            "server": ("127.0.0.1", 7433),
            "scheme": "ws" if kind == "websocket" else "http",
            "root_path": "",
            "extensions": {"websocket.http.response": {}},
        }
        await self.app(scope, receive, send)  # type: ignore[arg-type]
        if sent[0]["type"] == "websocket.accept":
            return 101, {}, None
        answer = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        content = b"".join(message.get("body", b"") for message in sent[1:])
        with contextlib.suppress(ValueError):
            return sent[0]["status"], answer, json.loads(content)
        return sent[0]["status"], answer, content


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    store = await SqliteHubStore.open(tmp_path / "hub.db")
    yield Door(store, await prepare_tokens(store, tmp_path, 1), tmp_path)
    await store.aclose()


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def test_w12_every_route_has_the_class_it_should(door: Door) -> None:
    found = {}
    for line in door.table:
        kind = {Route: next(iter(line.methods), ""), WebSocketRoute: "WS", Mount: "*"}[type(line.route)]  # type: ignore[index]
        assert line.route.path == line.path  # type: ignore[attr-defined]
        found[(kind, line.path.removesuffix("/"))] = line.needed
    assert found == EXPECTED


async def test_w8_w12_each_route_is_closed_to_every_other_class(door: Door) -> None:
    """By what the application does, not by what its table says."""
    await door.pair()
    for (method, pattern), needed in EXPECTED.items():
        path = re.sub(r"\{.*?\}", "x", pattern) or "/"
        path = "/v1/git/agent-1/state.git/info/refs" if method == "*" else path
        kind = "websocket" if method == "WS" else "http"
        for role in ("none", "machine", "client", "phone"):
            headers = {} if role == "none" else bearer(door.token(role))
            status, _, content = await door.ask(path, method.replace("*", "GET"), headers, kind=kind)
            refused = isinstance(content, dict) and content.get("errorCode") in ("unauthenticated", "wrong_role")
            assert refused is (role not in ROLES[needed]), (method, path, role, status, content)


async def test_w9_a_foreign_host_is_refused_and_no_origin_is_allowed(door: Door) -> None:
    for host in ("evil.test", "evil.test:7433", "127.0.0.1.evil.test", "", "a b", "127.0.0.1:x"):
        status, _, content = await door.ask("/healthz", headers={"host": host})
        assert (status, content["errorCode"]) == (403, "foreign_host"), host
    for host in ("localhost:7433", "HUB.example", "[::1]:7433", "192.168.1.4"):
        status, headers, _ = await door.ask("/healthz", headers={"host": host})
        assert status == 200
        assert not any(name.startswith("access-control") for name in headers)


@pytest.mark.parametrize("kind", ["http", "websocket"])
async def test_w2_a_page_of_others_is_refused_before_any_frame(door: Door, kind: str) -> None:
    path = "/v1/environments/c/status/ws" if kind == "websocket" else "/v1/agents"
    for origin in ("https://evil.test", "null", "http://127.0.0.1:7434", "https://127.0.0.1:7433"):
        headers = {**bearer(door.token("client")), "Origin": origin}
        assert (await door.ask(path, headers=headers, kind=kind))[0] == 403
    assert (await door.ask(path, headers={"Cookie": "session=1"}, kind=kind))[0] == 401


async def test_w3_wrong_tokens_lock_their_source_out(door: Door) -> None:
    good = bearer(door.token("client"))
    assert (await door.ask("/v1/agents", headers=good))[0] == 200
    statuses = [(await door.ask("/v1/agents", headers=bearer(f"wrong-{n}")))[0] for n in range(1000)]
    assert statuses == [401] * WRONG_ATTEMPTS + [429] * (1000 - WRONG_ATTEMPTS)
    entries = [(entry.event, entry.source) for entry in await door.store.audit(10)]
    assert entries == [("locked_out", "127.0.0.1")]
    # A right token from there is not looked at either, unless that source had shown it before.
    status, headers, _ = await door.ask("/v1/agents", headers=bearer(door.token("machine")))
    assert (status, headers["retry-after"]) == (429, str(int(LOCK_S) + 1))
    assert (await door.ask("/v1/agents", headers=good))[0] == 200
    assert (await door.ask("/v1/agents", headers=bearer(door.token("machine")), source="10.0.0.2"))[0] == 200
    door.now += LOCK_S + 1
    assert (await door.ask("/v1/agents", headers=bearer(door.token("machine"))))[0] == 200


ATTEMPTS: tuple[tuple[dict[str, str], str], ...] = (
    (bearer("wrong"), ""),
    ({"Authorization": "Basic " + base64.b64encode(b"letta:wrong").decode()}, ""),
    ({"Authorization": "Basic !!!"}, ""),
    ({"Authorization": "Token wrong"}, ""),
    ({"Authorization": "Bearer "}, ""),
    ({"X-Api-Key": "wrong"}, ""),
    ({"Cookie": "token=wrong"}, ""),
    ({}, "token=wrong"),
    ({}, "deviceToken=wrong"),
    ({}, "access_token=wrong&x=1"),
    ({**bearer("wrong"), "X-Api-Key": "wrong"}, "deviceToken=wrong"),
)


@pytest.mark.parametrize("attempt", ATTEMPTS)
@pytest.mark.parametrize("path", ["/v1/agents", "/v1/git/agent-1/state.git/info/refs"])
async def test_w4_every_form_of_credential_counts(door: Door, attempt: tuple[dict[str, str], str], path: str) -> None:
    headers, query = attempt
    statuses = [(await door.ask(path, headers=headers, query=query))[0] for _ in range(WRONG_ATTEMPTS + 1)]
    assert statuses == [401] * WRONG_ATTEMPTS + [429]


async def test_w4_no_credential_is_no_guess(door: Door) -> None:
    assert {(await door.ask("/v1/agents"))[0] for _ in range(100)} == {401}


async def test_a_body_before_authentication_is_bounded(door: Door) -> None:
    path = "/v1/environments/register"
    assert (await door.ask(path, "POST", {"Content-Length": str(64 * 1024 + 1)}))[0] == 413
    assert (await door.ask(path, "POST", {"Content-Length": "x"}))[0] == 413
    headers = bearer(door.token("machine"))
    assert (await door.ask(path, "POST", headers, body=b" " * (64 * 1024 + 1)))[0] == 413


async def test_answers_carry_the_security_headers(door: Door) -> None:
    for path in ("/healthz", "/v1/nothing", "/v1", "/v1/agents", "/nothing.js"):
        _, headers, content = await door.ask(path)
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
        assert isinstance(content, dict)


async def test_tokens_are_private_and_kept(tmp_path: Path) -> None:
    store = await SqliteHubStore.open(tmp_path / "hub.db")
    await prepare_tokens(store, tmp_path, 1)
    files = {role: (tmp_path / f"{role.value}.token") for role in TokenRole}
    texts = {role: file.read_text().strip() for role, file in files.items()}
    assert {file.stat().st_mode & 0o777 for file in files.values()} == {0o600}
    assert not any(text.encode() in (tmp_path / "hub.db").read_bytes() for text in texts.values())
    again = await prepare_tokens(store, tmp_path, 2)
    assert {role: again.find(digest_of(text)).role for role, text in texts.items()} == {r: r for r in TokenRole}  # type: ignore[union-attr]
    # A torn or removed file revokes the token that was in it.
    files[TokenRole.CLIENT].write_text("")
    rotated = await prepare_tokens(store, tmp_path, 3)
    assert rotated.find(digest_of(texts[TokenRole.CLIENT])) is None
    assert rotated.find(digest_of("")) is None
    assert rotated.find(digest_of(texts[TokenRole.MACHINE])) is not None
    await store.aclose()


def test_the_lock_forgets_and_stays_small() -> None:
    lock = Lockout()
    for number in range(WRONG_ATTEMPTS - 1):
        assert lock.wrong("a", float(number)) is False
    assert lock.wrong("a", WINDOW_S + 1.0) is False
    for number in range(SOURCES_KEPT * 2):
        lock.wrong(f"source-{number}", 1.0)
    assert len(lock._sources) == SOURCES_KEPT


def test_only_the_authorization_header_presents_a_token() -> None:
    assert find_credential({}, {}, basic_allowed=True) == Absent()
    assert find_credential({"authorization": "bearer  t"}, {}, basic_allowed=False) == Presented(digest_of("t"))
    basic = {"authorization": "Basic " + base64.b64encode(b"letta:t").decode()}
    assert find_credential(basic, {}, basic_allowed=True) == Presented(digest_of("t"))
    assert find_credential(basic, {}, basic_allowed=False) == Unusable()
    other = {"authorization": "Basic " + base64.b64encode(b"someone:t").decode()}
    assert find_credential(other, {}, basic_allowed=True) == Unusable()
    assert find_credential({}, {"TOKEN": "t"}, basic_allowed=True) == Unusable()


def test_hosts_and_origins() -> None:
    assert not is_own_host(None, frozenset())
    assert not is_own_host("user@localhost", frozenset())
    assert not is_own_host("localhost/path", frozenset())
    own = own_origin("LOCALHOST:1", secure=False, public=None)
    assert is_own_origin("http://localhost:1", own)
    assert is_own_origin(None, own)
    assert not is_own_origin("https://localhost:1", own)
    assert not is_own_origin("http://", own_origin("", secure=True, public=None))


def test_a_public_address_has_an_origin_of_its_own() -> None:
    public = public_url("https://Hub.Example:443/")
    assert public == PublicUrl("https://hub.example", "hub.example", "hub.example")
    assert own_origin("hub.example", secure=False, public=public) == "https://hub.example"
    assert own_origin("hub.example:443", secure=False, public=public) == "https://hub.example"
    assert own_origin("127.0.0.1:7433", secure=False, public=public) == "http://127.0.0.1:7433"
    for bad in ("http://hub.example", "https://", "https://a/b", "https://u@h", "https://h?x", "hub.example"):
        with pytest.raises(ValueError, match="public address"):
            public_url(bad)
