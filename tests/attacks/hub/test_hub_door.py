"""ATTACKS.md W1 to W5, W8, W9, W10 and W12 on a running hub, over real sockets."""

import asyncio
import base64
import contextlib
import os
import re
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.routing import WebSocketRoute
from starlette.types import ASGIApp
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from lodger_hub.access.core.credentials import AuthClass
from lodger_hub.access.core.lockout import WRONG_ATTEMPTS
from lodger_hub.access.core.pairing import WRONG_CODES_PER_SOURCE
from lodger_hub.access.gate import Gate
from lodger_hub.app import GuardedRoute, hub_app
from lodger_hub.sockets import PromptHttp
from lodger_hub.store.sqlite import SqliteHubStore
from support.hub_calls import call, http_of, lease_of, page_socket, paired, running_machine
from support.hub_rig import Hub, receive_json, running_hub, until
from support.patience import LIMIT_S

ROUTES = (
    ("POST", "/v1/environments/register"),
    ("GET", "/v1/environments"),
    ("GET", "/v1/environments/d"),
    ("GET", "/v1/agents/"),
    ("POST", "/v1/pairings"),
    ("GET", "/v1/devices"),
    ("DELETE", "/v1/devices/d"),
    ("POST", "/v1/devices/d/rotate"),
    ("POST", "/v1/machines/d/release"),
    ("POST", "/v1/machines/d/mailbox"),
    ("GET", "/v1/machines/d/mailbox"),
    ("DELETE", "/v1/machines/d/mailbox/m"),
    ("GET", "/v1/git/agent-1/state.git/info/refs?service=git-receive-pack"),
    ("POST", "/v1/git/agent-1/state.git/git-receive-pack"),
)


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Hub]:
    async with running_hub(tmp_path) as hub:
        yield hub


async def test_w1_the_page_can_connect_to_nothing_but_its_own_hub(hub: Hub) -> None:
    async with http_of(hub) as http:
        response = await http.get("/?gatewayUrl=wss://evil.test&hub=https://evil.test#pair=X")
    policy = response.headers["content-security-policy"]
    assert re.search(r"(^|; )connect-src 'self'(;|$)", policy)
    assert re.search(r"(^|; )form-action 'none'(;|$)", policy)
    assert response.headers["referrer-policy"] == "no-referrer"
    assert "location" not in response.headers


async def refused_upgrade(url: str, **more: object) -> int:
    with pytest.raises(InvalidStatus) as caught:
        async with connect(url, proxy=None, **more):  # type: ignore[arg-type]
            pass
    return caught.value.response.status_code


async def test_w2_a_foreign_page_opens_no_socket(hub: Hub) -> None:
    await lease_of(hub)
    _, token = await paired(hub)
    url = f"{hub.url.replace('http', 'ws')}/v1/environments/device-1/status/ws"
    good = {"Authorization": f"Bearer {token}"}
    for origin in ("https://evil.test", "null", hub.url.replace("http", "https"), f"{hub.url}.evil.test"):
        assert await refused_upgrade(url, origin=origin, additional_headers=good) == 403
        protocols = ["lodger.v1", f"lodger.token.{token}"]
        assert await refused_upgrade(url, origin=origin, subprotocols=protocols) == 403
    assert await refused_upgrade(url, additional_headers={"Cookie": f"token={token}"}) == 401
    assert await refused_upgrade(f"{url}?token={token}") == 401
    # Without an origin nobody is a page, and without the plain protocol beside it no token is taken.
    assert await refused_upgrade(url, subprotocols=["lodger.v1", f"lodger.token.{token}"]) == 401
    assert await refused_upgrade(url, origin=hub.url, subprotocols=[f"lodger.token.{token}"]) == 401


async def test_the_hubs_own_page_opens_one_and_its_token_is_not_sent_back(hub: Hub) -> None:
    _, token = await paired(hub)
    async with running_machine(hub) as machine, page_socket(hub, "device-1", token) as page:
        assert page.subprotocol == "lodger.v1"
        assert token not in str(page.response.headers)
        await page.send('{"type":"hello"}')
        async with asyncio.timeout(LIMIT_S):
            while not machine.frames:  # noqa: ASYNC110 - filled by the machine's reader
                await asyncio.sleep(0.01)


async def test_w3_a_thousand_wrong_tokens_lock_their_source_out(hub: Hub) -> None:
    async with http_of(hub) as http:
        statuses = []
        for number in range(1000):
            headers = {"Authorization": f"Bearer guess-{number}"}
            statuses.append((await http.get("/v1/agents/", headers=headers)).status_code)
    assert statuses == [401] * WRONG_ATTEMPTS + [429] * (1000 - WRONG_ATTEMPTS)
    assert ("locked_out", "127.0.0.1") in await audit(hub)


async def audit(hub: Hub) -> list[tuple[str, str]]:
    reader = await SqliteHubStore.open(hub.state / "hub.db")
    try:
        return [(entry.event, entry.source) for entry in await reader.audit(100)]
    finally:
        await reader.aclose()


async def test_w3_a_guesser_of_pairing_codes_is_locked_out(hub: Hub) -> None:
    answers = []
    for number in range(WRONG_CODES_PER_SOURCE + 3):
        body = {"code": f"0000-000{number}", "name": "guesser"}
        answers.append(await call(hub, "", "POST", "/v1/pair", json=body))
    assert [status for status, _ in answers] == [403] * WRONG_CODES_PER_SOURCE + [429] * 3
    assert ("pairing_locked_out", "127.0.0.1") in await audit(hub)
    # The lock is no way to tell right codes from wrong ones.
    _, made = await call(hub, hub.token("client"), "POST", "/v1/pairings")
    status, _ = await call(hub, "", "POST", "/v1/pair", json={"code": made["code"], "name": "phone"})
    assert status == 429


COMBINATIONS: tuple[tuple[dict[str, str], str], ...] = (
    ({"Authorization": "Bearer wrong"}, "?deviceToken=wrong"),
    ({"Authorization": "Bearer wrong", "X-Api-Key": "wrong"}, ""),
    ({"Authorization": "Basic " + base64.b64encode(b"letta:wrong").decode()}, "?token=wrong"),
    ({"Cookie": "token=wrong"}, "?deviceToken=wrong"),
    ({}, "?deviceToken=wrong&deviceId=device-1"),
    ({"X-Auth-Token": "wrong"}, ""),
    ({"Sec-WebSocket-Protocol": "lodger.v1, lodger.token.wrong"}, ""),
    ({"Sec-WebSocket-Protocol": "lodger.token.wrong", "Authorization": "Bearer wrong"}, ""),
)


@pytest.mark.parametrize("combination", COMBINATIONS)
async def test_w4_every_combination_of_credentials_counts(hub: Hub, combination: tuple[dict[str, str], str]) -> None:
    headers, query = combination
    async with http_of(hub) as http:
        statuses = [
            (await http.get(f"/v1/agents/{query}", headers=headers)).status_code for _ in range(WRONG_ATTEMPTS + 1)
        ]
    assert statuses == [401] * WRONG_ATTEMPTS + [429]


async def test_w4_sockets_count_too(hub: Hub) -> None:
    statuses = []
    for number in range(WRONG_ATTEMPTS + 1):
        with pytest.raises(InvalidStatus) as caught:
            async with page_socket(hub, "device-1", f"guess{number}"):
                pass
        statuses.append(caught.value.response.status_code)
    assert statuses == [401] * WRONG_ATTEMPTS + [429]


async def test_w4_two_credentials_are_none_even_if_one_is_right(hub: Hub) -> None:
    token = hub.token("client")
    both = {"Authorization": f"Bearer {token}", "Sec-WebSocket-Protocol": f"lodger.v1, lodger.token.{token}"}
    async with http_of(hub) as http:
        assert (await http.get("/v1/agents/", headers=both)).status_code == 401


async def test_w5_a_token_that_is_present_but_wrong_skips_nothing(hub: Hub) -> None:
    await lease_of(hub)
    for url in ("/v1/environments/device-1", "/v1/devices", "/v1/machines/device-1/mailbox"):
        assert (await call(hub, "garbage", "GET", url))[0] == 401
    lease = await lease_of(hub)
    wrong = {"Authorization": "Bearer garbage"}
    assert await refused_upgrade(f"{lease}&deviceId=device-1", additional_headers=wrong) == 401
    # And a machine's lease is no credential: a client's token does not open its socket.
    client = {"Authorization": f"Bearer {hub.token('client')}"}
    assert await refused_upgrade(f"{lease}&deviceId=device-1", additional_headers=client) == 403


async def test_w8_nothing_answers_without_a_token(hub: Hub) -> None:
    async with http_of(hub) as http:
        for method, path in ROUTES:
            for other in {method, "GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}:
                response = await http.request(other, path)
                assert response.status_code == 401, (other, path)


async def test_w8_a_phone_cannot_let_others_in_or_act_as_a_machine(hub: Hub) -> None:
    _, token = await paired(hub)
    assert (await call(hub, token, "POST", "/v1/pairings"))[1]["errorCode"] == "wrong_role"
    body = {"deviceId": "mine", "connectionName": "x"}
    assert (await call(hub, token, "POST", "/v1/environments/register", json=body))[1]["errorCode"] == "wrong_role"
    assert (await call(hub, token, "GET", "/v1/git/agent-1/state.git/info/refs?service=git-upload-pack"))[0] == 403
    status, answer = await call(hub, token, "POST", "/v1/devices/own-client/rotate")
    assert (status, answer["errorCode"]) == (403, "not_yours")
    # What a device says of itself at pairing changes nothing.
    _, made = await call(hub, hub.token("client"), "POST", "/v1/pairings")
    wish = {"code": made["code"], "name": "x", "role": "machine", "device_id": "own-client", "owner": True}
    _, given = await call(hub, "", "POST", "/v1/pair", json=wish)
    assert (await call(hub, given["token"], "POST", "/v1/pairings"))[0] == 403
    assert given["device_id"] != "own-client"


async def test_w8_a_machine_that_joined_is_a_machine_and_no_client(hub: Hub) -> None:
    owner = hub.token("client")
    assert (await call(hub, owner, "POST", "/v1/pairings", json={"role": "owner"}))[0] == 400
    _, made = await call(hub, owner, "POST", "/v1/pairings", json={"role": "machine"})
    _, given = await call(hub, "", "POST", "/v1/pair", json={"code": made["code"], "name": "laptop"})
    assert given["role"] == "machine"
    for method, path in (("GET", "/v1/devices"), ("DELETE", f"/v1/devices/{given['device_id']}")):
        assert (await call(hub, given["token"], method, path))[1]["errorCode"] == "wrong_role"
    body = {"deviceId": "laptop", "connectionName": "laptop"}
    assert (await call(hub, given["token"], "POST", "/v1/environments/register", json=body))[0] == 200


async def test_w9_a_rebound_name_is_refused_and_nothing_is_shared(hub: Hub) -> None:
    port = hub.url.rsplit(":", 1)[1]
    async with http_of(hub, hub.token("client")) as http:
        for path in ("/", "/healthz", "/v1/devices", "/v1/pair"):
            response = await http.get(path, headers={"Host": f"evil.test:{port}"})
            assert (response.status_code, response.json()["errorCode"]) == (403, "foreign_host")
            own = await http.get(path, headers={"Origin": hub.url})
            assert not any(name.startswith("access-control") for name in own.headers)
        preflight = {"Origin": "https://evil.test", "Access-Control-Request-Method": "POST"}
        assert (await http.options("/v1/pair", headers=preflight)).status_code == 403


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
async def test_w10_another_local_user_gets_neither_in_nor_at_the_tokens(hub: Hub) -> None:
    files = [hub.state / name for name in ("machine.token", "client.token", "hub.db")]
    for file in files:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    script = (
        "import encodings.idna, os, sys, urllib.request, urllib.error\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "for name in sys.argv[2:]:\n"
        "    try: open(name).read(); print('read', name)\n"
        "    except OSError: pass\n"
        "try: urllib.request.urlopen(sys.argv[1] + '/v1/devices'); print('in')\n"
        "except urllib.error.HTTPError as error: print(error.code)\n"
    )
    # The folders above belong to the test; the hub's own files must hold by themselves.
    for folder in (hub.state, *hub.state.parents):
        if folder == Path("/tmp"):
            break
        folder.chmod(folder.stat().st_mode | 0o755)
    result = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-S", "-c", script, hub.url, *map(str, files)],
        capture_output=True,
        text=True,
        timeout=20,
        env={},
    )
    assert result.stdout.split() == ["401"], result


async def test_w12_the_default_hub_has_no_route_without_a_class(hub: Hub) -> None:
    """The unit test of the table covers each class; here, that a public route gives away nothing."""
    async with http_of(hub) as http:
        public = {path: (await http.get(path)).status_code for path in ("/healthz", "/", "/any", "/v1/pair")}
    assert (public.pop("/healthz"), public.pop("/v1/pair")) == (200, 405)
    # The page, or the line that says that it has not been built.
    assert set(public.values()) in ({200}, {503})
    assert {one.value for one in AuthClass} == {"public", "machine", "client", "owner", "either", "git"}


async def test_w8_w12_the_routes_of_a_started_hub_are_closed_to_everybody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Walks the table that the started hub really serves, so that a new route is covered as it comes."""
    served: list[GuardedRoute] = []

    def remember(table: Sequence[GuardedRoute], gate: Gate) -> ASGIApp:
        served.extend(table)
        return hub_app(table, gate)

    monkeypatch.setattr("lodger_hub.server.hub_app", remember)
    async with running_hub(tmp_path) as hub:
        _, phone = await paired(hub)
        machine = hub.token("machine")
        strangers = {
            AuthClass.MACHINE: (phone, hub.token("client")),
            AuthClass.GIT: (phone, hub.token("client")),
            AuthClass.CLIENT: (machine,),
            AuthClass.OWNER: (phone, machine),
            AuthClass.EITHER: (),
        }
        walked: set[str] = set()
        async with http_of(hub) as http:
            for line in served:
                if line.needed is AuthClass.PUBLIC:
                    continue
                path = re.sub(r"\{[a-z_]+\}", "device-1", line.path)
                path += "/agent-1/state.git/info/refs?service=git-upload-pack" if line.needed is AuthClass.GIT else ""
                for token, wanted in (("", 401), *((one, 403) for one in strangers[line.needed])):
                    headers = {"Authorization": f"Bearer {token}"} if token else {}
                    if isinstance(line.route, WebSocketRoute):
                        where = hub.url.replace("http", "ws") + path
                        assert await refused_upgrade(where, additional_headers=headers) == wanted, line
                    else:
                        method = next(iter(line.methods), "GET")
                        assert (await http.request(method, path, headers=headers)).status_code == wanted, line
                    walked.add(line.path.rstrip("/"))
        assert walked == {line.path.rstrip("/") for line in served if line.needed is not AuthClass.PUBLIC}


@pytest.mark.parametrize("before", [b"", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"])
async def test_a_stranger_who_never_finishes_a_request_is_let_go(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, before: bytes
) -> None:
    monkeypatch.setattr(PromptHttp, "head_limit_s", 0.3)
    parts = urlsplit(hub.url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(before)
    if before:
        assert (await reader.readuntil(b'{"ok":true}')).startswith(b"HTTP/1.1 200")
    began = asyncio.get_running_loop().time()
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(4):
            while not reader.at_eof():
                writer.write(b"G")
                await writer.drain()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(1), 0.05)
    assert asyncio.get_running_loop().time() - began < 2
    writer.transport.abort()


async def test_an_upgraded_socket_and_a_slow_answer_are_not_cut(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PromptHttp, "head_limit_s", 0.2)
    _, token = await paired(hub)
    async with running_machine(hub) as machine, page_socket(hub, "device-1", token) as page:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(page.recv(), 0.6)
        await page.send('{"type":"still"}')
        await until(lambda: len(machine.frames) == 1, "the socket lives")


async def test_tokens_are_in_no_url_and_no_answer_but_one(hub: Hub) -> None:
    device, token = await paired(hub)
    async with http_of(hub, token) as http:
        for path in ("/v1/devices", "/v1/environments", "/healthz"):
            assert token not in (await http.get(path)).text
    _, made = await call(hub, hub.token("client"), "POST", "/v1/pairings")
    for link in made["links"]:
        url = httpx.URL(link["url"])
        assert (url.query, url.fragment) == (b"", f"pair={made['code']}")
    async with running_machine(hub), page_socket(hub, "device-1", token) as page:
        assert "lodger.token" not in str(page.response.headers)
        await page.send("{}")
        assert device
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await receive_json(page)
