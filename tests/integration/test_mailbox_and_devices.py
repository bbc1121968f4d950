"""A phone is paired from the command line, leaves a message for a sleeping machine, and is revoked: real processes."""

import asyncio
import json
import sqlite3
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.patience import LIMIT_S
from support.program_client import bash, local_client, open_conversation, remember, script
from support.programs import Home, World, new_world, until

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with new_world("mailbox") as made:
        yield made


def call(url: str, token: str, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(url + path, data=data, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=LIMIT_S) as response:
            return response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def rows_of(home: Home, message_id: str) -> int:
    with sqlite3.connect(f"file:{home.database}?mode=ro", uri=True, timeout=10) as database:
        (count,) = database.execute("SELECT count(*) FROM inbox WHERE client_message_id = ?", (message_id,)).fetchone()
        return int(count)


async def test_a_message_reaches_a_machine_that_was_asleep_and_a_revoked_phone_reaches_nothing(world: World) -> None:
    a, endpoint = world.home("a"), await world.endpoint()
    hub = await world.hub(a)
    url = hub.first["url"]
    token_file = a.state / "hub" / "machine.token"
    dialling = ("--hub", url, "--hub-token-file", str(token_file))
    daemon = await world.daemon(a, *dialling, endpoint=endpoint)
    async with local_client(a.socket) as client:
        conversation = await open_conversation(client, cwd=a.workspace)
        await conversation.turn("Remember. " + script({"calls": [remember("x", "A fact.")]}, {"text": "kept"}))
        runtime = conversation.runtime

    pairing = (await world.run(a, "pair", "--json")).ok().json
    wish = {"code": pairing["code"], "name": "Ada's phone"}
    _, phone = await asyncio.to_thread(call, url, "", "POST", "/v1/pair", wish)
    (machine,) = (await asyncio.to_thread(call, url, phone["token"], "GET", "/v1/environments"))[1]["connections"]
    device_id = machine["deviceId"]
    assert await daemon.stop() == 0

    async def synced() -> bool:
        answer = await asyncio.to_thread(call, url, phone["token"], "GET", f"/v1/environments/{device_id}")
        return answer[1]["lodger"]["lastMemorySyncAt"] is not None

    async def post(message_id: str, text: str) -> int:
        message = {"role": "user", "content": text, "client_message_id": message_id}
        payload = {"kind": "create_message", "messages": [message]}
        frame = {"type": "input", "runtime": runtime, "payload": payload}
        status, receipt = await asyncio.to_thread(
            call, url, phone["token"], "POST", f"/v1/machines/{device_id}/mailbox", frame
        )
        assert receipt.get("connected", False) is False, receipt
        return status

    assert [await post("cm-phone-1", script({"text": "good morning"})) for _ in range(2)] == [202, 202]

    async def sent() -> list[tuple[str, str]]:
        answer = await asyncio.to_thread(call, url, phone["token"], "GET", f"/v1/machines/{device_id}/mailbox")
        return [(one["client_message_id"], one["state"]) for one in answer[1]["messages"]]

    daemon = await world.daemon(a, *dialling, endpoint=endpoint)
    async with asyncio.timeout(30):
        while await sent() != [("cm-phone-1", "delivered")]:  # noqa: ASYNC110 - asked over HTTP
            await asyncio.sleep(0.05)
        while not await synced():  # noqa: ASYNC110 - asked over HTTP
            await asyncio.sleep(0.05)
    assert rows_of(a, "cm-phone-1") == 1
    await until(lambda: _said(a, "good morning"), "the message is in the transcript")

    assert await daemon.stop() == 0
    assert await post("cm-phone-2", "do harm") == 202
    listed = (await world.run(a, "devices", "list", "--json")).ok().json
    assert [one["name"] for one in listed if not one["is_own"]] == ["Ada's phone"]
    (await world.run(a, "devices", "revoke", "Ada's phone")).ok()
    assert (await asyncio.to_thread(call, url, phone["token"], "GET", "/v1/environments"))[0] == 401
    assert (await world.run(a, "devices", "revoke", "Ada's phone")).code == 1

    rotated = token_file.read_text()
    (await world.run(a, "devices", "rotate", "machine")).ok()
    assert token_file.read_text() != rotated
    await world.daemon(a, *dialling, endpoint=endpoint)
    own = (a.state / "hub" / "client.token").read_text().strip()
    async with asyncio.timeout(30):
        while True:
            _, shown = await asyncio.to_thread(call, url, own, "GET", f"/v1/environments/{device_id}")
            if shown["connectionId"]:
                break
            await asyncio.sleep(0.05)
    assert rows_of(a, "cm-phone-2") == 0


async def test_a_second_machine_joins_with_a_code_and_is_revoked_alone(world: World) -> None:
    a, b, endpoint = world.home("a"), world.home("b"), await world.endpoint()
    url = (await world.hub(a)).first["url"]
    pairing = (await world.run(a, "pair", "--machine", "--json")).ok().json
    assert (await world.run(b, "join", "http://hub.example", pairing["code"])).code == 2
    joined = (await world.run(b, "join", url, pairing["code"], "--json")).ok().json
    assert (await world.run(b, "join", url, pairing["code"], "--json")).code == 1, "the hub answered: used"
    assert (await world.run(b, "join", "http://127.0.0.1:1", pairing["code"], "--json")).code == 3, "nobody listens"
    token_file = b.lodger / "config" / "hub.token"
    assert joined["token_file"] == str(token_file)
    assert token_file.stat().st_mode & 0o777 == 0o600
    await world.daemon(b, "--hub", url, "--hub-token-file", str(token_file), endpoint=endpoint)
    own = (a.state / "hub" / "client.token").read_text().strip()

    async def connected() -> list[bool]:
        _, shown = await asyncio.to_thread(call, url, own, "GET", "/v1/environments")
        return [one["lodger"]["connected"] for one in shown["connections"]]

    async with asyncio.timeout(30):
        while await connected() != [True]:  # noqa: ASYNC110 - asked over HTTP
            await asyncio.sleep(0.05)
        (await world.run(a, "devices", "revoke", joined["device_id"])).ok()
        while await connected() != [False]:  # noqa: ASYNC110 - asked over HTTP
            await asyncio.sleep(0.05)
        while (found := await _hub_finding(world, b))["problem"] != "hub-refused":
            assert found["problem"] in (None, "hub-away"), found
    assert found["command"] == f"lodger join {url} CODE"
    assert (await world.run(a, "devices", "release", "nobody")).code == 1
    (machine,) = (await asyncio.to_thread(call, url, own, "GET", "/v1/environments"))[1]["connections"]
    released = (await world.run(a, "devices", "release", machine["connectionName"], "--json")).ok().json
    assert released["machine_id"] == machine["deviceId"]
    # The machine token of the hub's own machine still works, and a phone's code is no machine's.
    machine_token = (a.state / "hub" / "machine.token").read_text().strip()
    assert (await asyncio.to_thread(call, url, machine_token, "GET", "/v1/environments"))[0] == 200
    phone = (await world.run(a, "pair", "--json")).ok().json
    assert (await world.run(b, "join", url, phone["code"])).code == 1


async def _hub_finding(world: World, home: Home) -> dict[str, Any]:
    (found,) = (one for one in (await world.run(home, "doctor", "--json")).json if one["name"] == "hub")
    assert isinstance(found, dict)
    return found


def _said(home: Home, text: str) -> bool:
    with sqlite3.connect(f"file:{home.database}?mode=ro", uri=True, timeout=10) as database:
        return any(text in str(row) for row in database.execute("SELECT * FROM messages"))


async def test_e5_what_a_lost_phone_has_sent_is_dropped_and_what_it_has_begun_is_stopped(world: World) -> None:
    """The machine is awake and has accepted everything; one turn of this machine's own person goes on."""
    a, endpoint = world.home("a"), await world.endpoint()
    hub = await world.hub(a)
    url = hub.first["url"]
    await world.daemon(a, "--hub", url, "--hub-token-file", str(a.state / "hub" / "machine.token"), endpoint=endpoint)

    async def pair() -> tuple[str, str]:
        pairing = (await world.run(a, "pair", "--json")).ok().json
        wish = {"code": pairing["code"], "name": "phone"}
        _, given = await asyncio.to_thread(call, url, "", "POST", "/v1/pair", wish)
        return given["device_id"], given["token"]

    device, token = await pair()
    async with asyncio.timeout(30):
        while not (await asyncio.to_thread(call, url, token, "GET", "/v1/environments"))[1]["connections"]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    _, listed = await asyncio.to_thread(call, url, token, "GET", "/v1/environments")
    (machine,) = listed["connections"]

    async with local_client(a.socket) as client:
        own = await open_conversation(client, cwd=a.workspace, new=True)
        others = await open_conversation(client, cwd=a.workspace, new=True)
        work = bash("while [ ! -e gate ]; do sleep 0.05; done")
        began_at = len(client.frames)
        await own.say("Work. " + script({"calls": [work]}, {"text": "done"}))
        await until(lambda: _statuses(a, "%") != [], "the own turn runs")
        for message_id, runtime, steps in (
            ("cm-waits", own.runtime, [{"text": "harm"}]),
            ("cm-runs", others.runtime, [{"calls": [bash("sleep 60")]}, {"text": "harm"}]),
        ):
            message = {"role": "user", "content": script(*steps), "client_message_id": message_id}
            payload = {"kind": "create_message", "messages": [message], "delivery": "turn_end"}
            frame = {"type": "input", "runtime": runtime, "payload": payload}
            where = f"/v1/machines/{machine['deviceId']}/mailbox"
            assert (await asyncio.to_thread(call, url, token, "POST", where, frame))[0] == 202
        await until(lambda: _statuses(a, "cm-waits") == [("accepted", None)], "it waits in the inbox")
        await until(lambda: _statuses(a, "cm-runs") == [("admitted", None)], "it runs")
        began = asyncio.get_running_loop().time()
        (await world.run(a, "devices", "revoke", device)).ok()
        await until(lambda: _statuses(a, "cm-waits") == [("cancelled", "revoked")], "it is dropped", 10)
        await until(lambda: _statuses(a, "cm-runs") == [("answered", "cancelled")], "it is stopped", 10)
        assert asyncio.get_running_loop().time() - began < 10
        (a.workspace / "gate").touch()
        await own.finished(began_at)
        assert "".join(own.fragments(began_at)) == "done", "the turn of this machine's person goes on"
    with sqlite3.connect(f"file:{a.database}?mode=ro", uri=True, timeout=10) as database:
        rows = database.execute("SELECT actor, action, subject, detail FROM audit WHERE action = 'device.revoked'")
        assert [(*row[:3], json.loads(row[3])) for row in rows] == [
            ("hub", "device.revoked", device, {"removed": 1, "stopped": 1})
        ]


def _statuses(home: Home, message_id: str) -> list[tuple[str, str | None]]:
    with sqlite3.connect(f"file:{home.database}?mode=ro", uri=True, timeout=10) as database:
        rows = database.execute(
            "SELECT status, outcome FROM inbox WHERE client_message_id LIKE ? ORDER BY number", (message_id,)
        )
        return [(str(status), outcome) for status, outcome in rows]
