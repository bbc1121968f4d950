"""A phone is paired from the command line, leaves a message for a sleeping machine, and is revoked: real processes."""

import asyncio
import json
import sqlite3
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.program_client import local_client, open_conversation, remember, script
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
        with urllib.request.urlopen(request, timeout=10) as response:
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
    assert (await world.run(a, "devices", "revoke", "Ada's phone")).code == 2

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
    assert (await world.run(b, "join", url, pairing["code"], "--json")).code == 3
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
    # The machine token of the hub's own machine still works, and a phone's code is no machine's.
    machine_token = (a.state / "hub" / "machine.token").read_text().strip()
    assert (await asyncio.to_thread(call, url, machine_token, "GET", "/v1/environments"))[0] == 200
    phone = (await world.run(a, "pair", "--json")).ok().json
    assert (await world.run(b, "join", url, phone["code"])).code == 1


def _said(home: Home, text: str) -> bool:
    with sqlite3.connect(f"file:{home.database}?mode=ro", uri=True, timeout=10) as database:
        return any(text in str(row) for row in database.execute("SELECT * FROM messages"))
