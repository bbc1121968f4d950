"""A port of a box on an origin of its own at the hub: who is let in, and what a hostile application there cannot do.

The application answers with what it was given and tries to take over its neighbours on the same host.
"""

import asyncio
import contextlib
import json
import re
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from lodger_daemon.ports.ports import NotOpened
from lodger_hub.options import LanListener
from lodger_hub.reach import ReachKind
from support.hub_calls import call, paired
from support.hub_rig import running_hub, until
from support.patience import LIMIT_S
from support.port_room import port_room
from support.real_boxes import workspace_for_tests
from support.shared_port import PORT, SharedPort, address, shared_port


@pytest.fixture
def workspace() -> Iterator[Path]:
    with workspace_for_tests() as made:
        yield made


@pytest.fixture
async def shared(tmp_path: Path, workspace: Path) -> AsyncIterator[SharedPort]:
    async with shared_port(tmp_path, workspace) as made:
        yield made


async def test_a_browser_that_was_let_in_reaches_the_program(shared: SharedPort) -> None:
    entered = await shared.let_in()
    assert entered.status == 303 and entered.all("location") == ["/"]
    [cookie] = entered.all("set-cookie")
    assert cookie.startswith(f"lodger_port_{shared.port}=")
    assert cookie.endswith("; Path=/; HttpOnly; SameSite=Strict")
    answer = await shared.ask("/some/where?x=1")
    assert answer.status == 200 and answer.json["path"] == "/some/where?x=1"
    uploaded = await shared.ask("/up", method="POST", body=b"u" * 3_000_000)
    assert uploaded.json["got"] == 3_000_000
    downloaded = await shared.ask("/big")
    assert len(downloaded.body) == 100 * 2**20


async def test_web_sockets_pass(shared: SharedPort) -> None:
    await shared.let_in()
    cookie = "; ".join(f"{name}={value}" for name, value in shared.cookies.items())
    url = f"ws://127.0.0.1:{shared.port}/hmr"
    async with connect(url, additional_headers={"Cookie": cookie}, origin=None, proxy=None) as socket:
        assert await socket.recv() == "hello"
    own = f"http://127.0.0.1:{shared.port}"
    async with connect(url, additional_headers={"Cookie": cookie, "Origin": own}, proxy=None) as socket:
        assert await socket.recv() == "hello"
    for headers in ({}, {"Cookie": cookie, "Origin": shared.hub.url}):
        with pytest.raises(InvalidStatus):
            await connect(url, additional_headers=headers, proxy=None)


async def test_without_the_cookie_nobody_is_let_in(shared: SharedPort) -> None:
    await shared.let_in()
    name = f"lodger_port_{shared.port}"
    for cookies in ({}, {name: ""}, {name: "x" * 43}, {"lodger_port_1": shared.cookies[name]}):
        refused = await shared.ask(cookies=cookies)
        assert refused.status == 403 and b"Lodger's page" in refused.body
    # A client's token is no way in either, and not handed on.
    headers = {"Authorization": f"Bearer {shared.hub.token('client')}"}
    assert (await shared.ask(cookies={}, headers=headers)).status == 403


async def test_a_word_works_once(shared: SharedPort) -> None:
    _, entry = await shared.entry()
    shared.port = entry["port"]
    assert (await shared.ask(entry["path"])).status == 303
    again = await shared.ask(entry["path"])
    assert again.status == 403 and again.all("set-cookie") == []
    for path in ("/.lodger/enter", "/.lodger/enter?word=", f"{entry['path']}&word=x"):
        assert (await shared.ask(path)).status == 403
    status, _ = await call(shared.hub, "", "POST", f"/v1/ports/{shared.share}/entries")
    assert status == 401
    status, _ = await call(shared.hub, shared.hub.token("machine"), "POST", f"/v1/ports/{shared.share}/entries")
    assert status == 403
    status, _ = await call(shared.hub, shared.hub.token("client"), "POST", "/v1/ports/another/entries")
    assert status == 404


async def test_a_foreign_host_name_is_refused(shared: SharedPort) -> None:
    """A page of the web whose name leads here would speak with the cookies of nobody, and is not heard at all."""
    await shared.let_in()
    for host in ("evil.example", f"evil.example:{shared.port}", f"127.0.0.1.nip.example:{shared.port}"):
        assert (await shared.ask(headers={"Host": host})).status == 403
    assert (await shared.ask(headers={"Host": f"localhost:{shared.port}"})).status == 200


async def test_pages_of_other_origins_are_refused_those_of_the_hub_and_of_other_ports_too(shared: SharedPort) -> None:
    await shared.let_in()
    own = f"http://127.0.0.1:{shared.port}"
    assert (await shared.ask(headers={"Origin": own, "Sec-Fetch-Site": "same-origin"})).status == 200
    for headers in (
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": shared.hub.url},
        {"Origin": f"http://127.0.0.1:{PORT}"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"},
        *(
            {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": frame}
            for frame in ("iframe", "frame", "embed", "object")
        ),
    ):
        assert (await shared.ask(headers=headers)).status == 403, headers
    opened = {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate"}
    assert (await shared.ask(headers=opened)).status == 200
    assert (await shared.ask(headers={**opened, "Sec-Fetch-Dest": "document"})).status == 200
    framed_by_itself = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
    assert (await shared.ask(headers=framed_by_itself)).status == 200


async def test_nothing_stays_in_the_browser_to_answer_for_the_next_program_at_that_port(shared: SharedPort) -> None:
    await shared.let_in()
    worker = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "same-origin", "Sec-Fetch-Dest": "serviceworker"}
    assert (await shared.ask("/sw.js", {**worker, "Service-Worker": "script"})).status == 403
    # The control: as an ordinary script it is the program's own affair.
    assert (await shared.ask("/sw.js", {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Dest": "script"})).status == 200


async def test_a_body_has_one_end_for_whoever_reads_it(shared: SharedPort) -> None:
    await shared.let_in()
    answer = await shared.ask(method="POST", headers={"Transfer-Encoding": "chunked"}, body=b"hello")
    assert answer.seen("transfer-encoding") == ["chunked"]
    assert answer.seen("content-length") == []


async def test_the_application_sees_no_session_and_sets_none(shared: SharedPort) -> None:
    await shared.let_in()
    others = {**shared.cookies, "lodger_port_4711": "of another port", "mine": "1"}
    answer = await shared.ask(cookies=others)
    assert answer.seen("cookie") == ["mine=1"]
    assert answer.all("set-cookie") == ["theme=dark; Path=/"]
    # The control: what it tried to set.
    assert answer.seen("host") == [f"127.0.0.1:{shared.port}"]
    for name in ("strict-transport-security", "clear-site-data"):
        assert answer.all(name) == []
    # It asked to keep the connection, on which the next request would reach it with all its cookies.
    assert answer.all("connection") == ["close"]


async def test_nothing_after_the_first_request_reaches_the_application(shared: SharedPort) -> None:
    await shared.let_in()
    name, secret = next(iter(shared.cookies.items()))
    reader, writer = await asyncio.open_connection("127.0.0.1", shared.port)
    head = f"Host: 127.0.0.1:{shared.port}\r\nCookie: {name}={secret}\r\n\r\n"
    writer.write(f"GET /first HTTP/1.1\r\n{head}GET /second HTTP/1.1\r\n{head}".encode())
    whole = await asyncio.wait_for(reader.read(), 15)
    assert whole.count(b"HTTP/1.1 200") == 1 and b"/second" not in whole
    writer.close()


@pytest.mark.parametrize(
    "smuggled",
    [
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 70_000 + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        *(
            b"GET " + target + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
            for target in (b"//[", b"//[a]/", b"http://[", b"http://127.0.0.1/.lodger/enter?word=x", b"*", b"?word=x")
        ),
    ],
)
async def test_what_is_no_plain_request_ends_the_connection(shared: SharedPort, smuggled: bytes) -> None:
    await shared.let_in()
    reader, writer = await asyncio.open_connection("127.0.0.1", shared.port)
    writer.write(smuggled)
    writer.write_eof()
    try:
        whole = await asyncio.wait_for(reader.read(), 15)
    except ConnectionResetError:
        whole = b""
    assert b" 200 " not in whole
    writer.close()
    assert (await shared.ask()).status == 200


@pytest.mark.parametrize("path", ["/endless", "/garbage", "/switch", "/two-lengths", "/split"])
async def test_an_application_that_answers_oddly_harms_itself_alone(shared: SharedPort, path: str) -> None:
    await shared.let_in()
    answer = await shared.ask(path)
    assert answer.status == 502 or not any("lodger_port_" in cookie for cookie in answer.all("set-cookie"))
    assert path == "/split" or answer.status == 502
    assert (await shared.ask()).status == 200


async def test_who_never_ends_a_request_is_cut_off(shared: SharedPort, monkeypatch: pytest.MonkeyPatch) -> None:
    await shared.let_in()
    monkeypatch.setattr("lodger_hub.ports.door.STRANGERS", 3)
    slow = [await asyncio.open_connection("127.0.0.1", shared.port) for _ in range(3)]
    for _, writer in slow:
        writer.write(b"GET / HTTP/1.1\r\nX-Slow:")
    reader, writer = await asyncio.open_connection("127.0.0.1", shared.port)
    assert await asyncio.wait_for(cut_off(reader), 5)
    writer.close()
    for _, writer in slow:
        writer.close()
    monkeypatch.setattr("lodger_hub.ports.door.HEAD_LIMIT_S", 0.2)
    await until(lambda: is_open(shared.port), "the port is there")
    reader, writer = await asyncio.open_connection("127.0.0.1", shared.port)
    writer.write(b"GET / HTTP/1.1\r\nX-Slow:")
    assert await asyncio.wait_for(cut_off(reader), 5)
    writer.close()
    assert (await shared.ask()).status == 200


async def cut_off(reader: asyncio.StreamReader) -> bool:
    with contextlib.suppress(ConnectionResetError):
        return await reader.read() == b""
    return True


async def test_a_revoked_device_is_out_at_once_and_others_stay(shared: SharedPort) -> None:
    device_id, token = await paired(shared.hub)
    await shared.let_in(token)
    phone = dict(shared.cookies)
    _, unused = await shared.entry(token)
    cookie = "; ".join(f"{name}={value}" for name, value in phone.items())
    url = f"ws://127.0.0.1:{shared.port}/hmr"
    async with connect(url, additional_headers={"Cookie": cookie}, proxy=None) as socket:
        assert await socket.recv() == "hello"
        await shared.let_in()
        status, _ = await call(shared.hub, shared.hub.token("client"), "DELETE", f"/v1/devices/{device_id}")
        assert status == 200
        await asyncio.wait_for(socket.wait_closed(), 5)
    assert (await shared.ask(cookies=phone)).status == 403
    assert (await shared.ask(unused["path"])).status == 403
    assert (await shared.ask()).status == 200


async def test_it_ends_when_the_person_closes_the_port_or_the_box_ends(shared: SharedPort) -> None:
    await shared.let_in()
    await shared.room.ports.close(shared.room.ports.listed()[0].box, PORT)
    await until(lambda: not is_open(shared.port), "the hub's port is closed")
    status, _ = await shared.entry()
    assert status == 404
    box = shared.room.ports.listed()[0].box
    with pytest.raises(NotOpened, match="is not open"):
        await shared.shares.share(box, PORT)
    await shared.room.ports.open(box, PORT)
    shared.share = await shared.shares.share(box, PORT)
    await shared.let_in()
    assert (await shared.ask()).status == 200
    await shared.room.manager.end(shared.room.key)
    await until(lambda: not is_open(shared.port), "the hub's port is closed")


def is_open(port: int) -> bool:
    import socket

    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


async def test_a_machine_reaches_no_connection_of_another(shared: SharedPort) -> None:
    """Its token opens streams only that it was asked for itself."""
    url = shared.hub.url.replace("http", "ws") + "/v1/ports/streams/guessed/ws"
    async with connect(url, additional_headers={"Authorization": f"Bearer {shared.hub.token('machine')}"}) as socket:
        await asyncio.wait_for(socket.wait_closed(), 5)
        assert socket.close_code == 1008
    with pytest.raises(InvalidStatus):
        await connect(url, additional_headers={"Authorization": f"Bearer {shared.hub.token('client')}"})


async def test_a_machine_gets_no_connection_that_another_was_asked_for(tmp_path: Path) -> None:
    async with running_hub(tmp_path / "hub") as hub:
        _, other = await paired(hub, "another machine", role="machine")
        sockets = hub.url.replace("http", "ws") + "/v1/ports"
        own = {"Authorization": f"Bearer {hub.token('machine')}"}
        async with connect(f"{sockets}/ws", additional_headers=own, proxy=None) as control:
            share = json.loads(await control.recv())["share"]
            _, entry = await call(hub, hub.token("client"), "POST", f"/v1/ports/{share}/entries")
            host = f"127.0.0.1:{entry['port']}"
            reader, writer = await asyncio.open_connection("127.0.0.1", entry["port"])
            writer.write(f"GET {entry['path']} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            [secret] = re.findall(rb"lodger_port_\d+=[\w-]+", await reader.read())
            writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", entry["port"])
            writer.write(f"GET / HTTP/1.1\r\nHost: {host}\r\nCookie: {secret.decode()}\r\n\r\n".encode())
            name = json.loads(await control.recv())["stream"]
            url = f"{sockets}/streams/{name}/ws"
            stranger = {"Authorization": f"Bearer {other}"}
            async with connect(url, additional_headers=stranger, proxy=None) as stream:
                await asyncio.wait_for(stream.wait_closed(), 5)
                assert stream.close_code == 1008
            async with connect(url, additional_headers=own, proxy=None) as stream:
                assert (await stream.recv(decode=False)).startswith(b"GET / HTTP/1.1")
            writer.close()


async def test_a_browser_that_does_not_read_holds_up_the_program_alone(shared: SharedPort, workspace: Path) -> None:
    """A large download waits in the box: neither daemon nor hub take it in, and others go on."""
    await shared.let_in()
    cookie = "; ".join(f"{name}={value}" for name, value in shared.cookies.items())
    reader, writer = await asyncio.open_connection("127.0.0.1", shared.port, limit=2**16)
    writer.write(f"GET /big HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {cookie}\r\n\r\n".encode())
    await reader.readexactly(1000)
    now, before = sent(workspace), -1
    while now == 0 or now != before:  # as long as something still moves
        assert (await shared.ask()).status == 200
        await asyncio.sleep(0.5)
        now, before = sent(workspace), now
    assert now < 50
    whole = 1000
    while data := await reader.read(2**20):
        whole += len(data)
    assert whole > 100 * 2**20
    writer.close()


def sent(workspace: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return int((workspace / "sent").read_text() or 0)
    return 0


async def test_a_hub_that_asks_for_connections_without_end_gets_so_many(
    shared: SharedPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it took the last descriptor of the daemon."""
    monkeypatch.setattr("lodger_daemon.ports.sharing.ALL_CONNECTIONS", 2)
    monkeypatch.setattr("lodger_hub.ports.shares.STREAM_WITHIN_S", 1.0)
    await shared.let_in()
    cookie = "; ".join(f"{name}={value}" for name, value in shared.cookies.items())
    async with contextlib.AsyncExitStack() as opened:
        for _ in range(2):
            url, headers = f"ws://127.0.0.1:{shared.port}/hmr", {"Cookie": cookie}
            await opened.enter_async_context(connect(url, additional_headers=headers, origin=None, proxy=None))
        assert (await shared.ask()).status == 502
    # Who leaves makes room.
    async with asyncio.timeout(LIMIT_S):
        while (await shared.ask()).status != 200:
            continue


async def test_a_program_that_is_gone_is_told(shared: SharedPort) -> None:
    await shared.let_in()
    await shared.room.stop_server()
    answer = await shared.ask()
    assert answer.status == 502 and b"Nothing answers" in answer.body


async def test_in_a_home_network_it_speaks_tls_with_the_hubs_own_certificate(tmp_path: Path, workspace: Path) -> None:
    lan = LanListener("127.0.0.1", 0)
    async with shared_port(tmp_path, workspace, lan=lan) as shared:
        [url] = [place.url for place in shared.hub.reach.places if place.kind is ReachKind.LAN]
        headers = {"Authorization": f"Bearer {shared.hub.token('client')}"}
        tls = ssl.create_default_context(cafile=str(shared.hub.state / "tls" / "lan.pem"))
        async with httpx.AsyncClient(verify=tls, trust_env=False) as http:
            answer = await http.post(f"{url}/v1/ports/{shared.share}/entries", headers=headers)
        shared.port, path = answer.json()["port"], answer.json()["path"]
        let_in = await shared.ask(path, tls=tls)
        [cookie] = let_in.all("set-cookie")
        assert cookie.endswith("; Secure")
        name, _, secret = cookie.partition(";")[0].partition("=")
        shared.cookies[name] = secret
        own = {"Origin": f"https://127.0.0.1:{shared.port}"}
        assert (await shared.ask(headers=own, tls=tls)).status == 200
        assert (await shared.ask(headers={"Origin": f"http://127.0.0.1:{shared.port}"}, tls=tls)).status == 403
        # On loopback it is another origin, with sessions of its own.
        _, entry = await shared.entry()
        assert entry["port"] != shared.port
        shared.port = entry["port"]
        assert (await shared.ask()).status == 403


async def test_behind_a_proxy_ports_are_not_offered(tmp_path: Path, workspace: Path) -> None:
    async with shared_port(tmp_path, workspace, public_url="https://hub.example") as shared:
        token = shared.hub.token("client")
        path = f"/v1/ports/{shared.share}/entries"
        status, answer = await call(shared.hub, token, "POST", path, headers={"Host": "hub.example"})
        assert (status, answer["errorCode"]) == (409, "not_here")
        status, _ = await call(shared.hub, token, "POST", path)
        assert status == 200


async def test_a_hub_that_is_away_is_told(tmp_path: Path, workspace: Path) -> None:
    async with running_hub(tmp_path / "hub") as hub:
        gone = address(hub)
    from lodger_daemon.ports.sharing import HubShares

    async with port_room(tmp_path, workspace) as room:
        await room.serve(f"exec python3 -m http.server {PORT}", PORT)
        await room.allowed(PORT)
        box = room.ports.listed()[0].box
        for hub_or_none, words in ((gone, "does not share"), (None, "has no hub")):
            shares = HubShares(room.ports, hub_or_none)
            with pytest.raises(NotOpened, match=words):
                await shares.share(box, PORT)
            await shares.aclose()
