"""Registration, presence and relay over real sockets."""

import asyncio
import contextlib
import json
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus

from lodger_hub.options import RelayLimits
from lodger_protocol.relay import RelayEvent, unwrap, wrap
from support.hub_rig import Hub, receive_json, running_hub, running_uplink, until
from support.patience import LIMIT_S

REGISTRATION: dict[str, Any] = {
    "deviceId": "device-1",
    "listenerInstanceId": "server-7192a217f927e981",
    "connectionName": "relay-single-basic",
    "metadata": {
        "lettaCodeVersion": "0.30.28",
        "os": "linux",
        "supported_commands": ["clear"],
        "machine": {"gpus": []},
    },
}


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Hub]:
    async with running_hub(tmp_path) as hub:
        yield hub


@contextlib.asynccontextmanager
async def calling(hub: Hub, role: str) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"Authorization": f"Bearer {hub.token(role)}"}
    async with httpx.AsyncClient(base_url=hub.url, headers=headers, trust_env=False) as http:
        yield http


async def register(hub: Hub, device_id: str = "device-1", **metadata: object) -> dict[str, Any]:
    body = {**REGISTRATION, "deviceId": device_id, "metadata": {**REGISTRATION["metadata"], **metadata}}
    async with calling(hub, "machine") as http:
        response = await http.post("/v1/environments/register", json=body)
        response.raise_for_status()
        content = response.json()
        assert isinstance(content, dict)
        return content


async def presence(hub: Hub, device_id: str = "device-1") -> dict[str, Any]:
    async with calling(hub, "client") as http:
        content = (await http.get(f"/v1/environments/{device_id}")).json()
        assert isinstance(content, dict)
        return content


async def closing(socket: ClientConnection) -> tuple[int | None, str | None]:
    async with asyncio.timeout(LIMIT_S):
        with contextlib.suppress(ConnectionClosed):
            while True:
                await socket.recv()
    return socket.close_code, socket.close_reason


async def test_a_registration_answers_as_the_protocol_says(hub: Hub) -> None:
    plain = await register(hub)
    assert set(plain) == {"connectionId", "wsUrl"}
    assert not plain["connectionId"].startswith("conn-")
    assert plain["wsUrl"] == f"{hub.url.replace('http', 'ws')}/v1/environments/ws?connectionId={plain['connectionId']}"
    assert (await register(hub, relay_envelope=True))["relayEnvelope"] is True
    assert "relayEnvelope" not in await register(hub, relay_envelope="yes")


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"deviceId":"a b","connectionName":"x"}', b'{"deviceId":"a"}', b"[" * 30000]
)
async def test_a_bad_registration_is_a_4xx_with_words(hub: Hub, body: bytes) -> None:
    async with calling(hub, "machine") as http:
        response = await http.post("/v1/environments/register", content=body)
    assert (response.status_code, response.json()["errorCode"]) == (400, "invalid_registration")


async def test_presence_is_what_the_socket_says(hub: Hub) -> None:
    lease = await register(hub)
    assert (await presence(hub))["connectionId"] is None
    async with hub.machine(lease["wsUrl"]) as machine:
        await until_online(hub)
        before = await presence(hub)
        await asyncio.sleep(0.005)
        await machine.send('{"type":"ping"}')
        assert await receive_json(machine) == {"type": "pong"}
        after = await presence(hub)
        assert after["lastHeartbeat"] > before["lastHeartbeat"]
        assert after["metadata"] == REGISTRATION["metadata"]
        assert after["connectionId"] == lease["connectionId"]
    await until_presence(hub, online=False)
    assert (await presence(hub))["lastHeartbeat"] >= after["lastHeartbeat"]


async def until_presence(hub: Hub, *, online: bool) -> None:
    async with asyncio.timeout(LIMIT_S):
        while ((await presence(hub))["connectionId"] is not None) is not online:  # noqa: ASYNC110 - asked over HTTP
            await asyncio.sleep(0.01)


async def until_online(hub: Hub) -> None:
    await until_presence(hub, online=True)


async def test_the_list_pages_and_filters(hub: Hub) -> None:
    leases = [await register(hub, f"device-{number}") for number in range(3)]
    async with hub.machine(leases[1]["wsUrl"], "device-1"), calling(hub, "client") as http:
        await until_online(hub)
        first = (await http.get("/v1/environments?limit=2&onlineOnly=false")).json()
        assert [one["deviceId"] for one in first["connections"]] == ["device-0", "device-1"]
        assert first["hasNextPage"] is True
        second = (await http.get(f"/v1/environments/?limit=2&after={first['connections'][-1]['id']}")).json()
        assert [one["deviceId"] for one in second["connections"]] == ["device-2"]
        online = (await http.get("/v1/environments?onlineOnly=true")).json()
        assert [one["deviceId"] for one in online["connections"]] == ["device-1"]
        assert online["hasNextPage"] is False
        assert (await http.get("/v1/environments?limit=0")).status_code == 400
        assert (await http.get(f"/v1/environments?limit={'9' * 5000}")).status_code == 400
        assert (await http.get("/v1/environments/nobody")).json()["errorCode"] == "unknown_machine"


async def test_an_unknown_lease_is_closed_with_1008(hub: Hub) -> None:
    lease = await register(hub)
    for url, device in ((lease["wsUrl"] + "x", "device-1"), (lease["wsUrl"], "another")):
        async with hub.machine(url, device) as machine:
            assert (await closing(machine))[0] == 1008


async def test_one_lease_has_one_socket(hub: Hub) -> None:
    lease = await register(hub)
    async with hub.machine(lease["wsUrl"]) as first:
        await until_online(hub)
        async with hub.machine(lease["wsUrl"]) as second:
            assert await closing(first) == (1000, "Replaced by new connection")
            await second.send('{"type":"ping"}')
            assert await receive_json(second) == {"type": "pong"}
            await register(hub)
            assert await closing(second) == (1000, "Replaced by new connection")
    async with hub.machine(lease["wsUrl"]) as old:
        assert (await closing(old))[0] == 1008


async def test_a_client_of_an_absent_machine_is_told(hub: Hub) -> None:
    await register(hub)
    for machine, status in (("device-1", 503), ("nobody", 404)):
        with pytest.raises(InvalidStatus) as caught:
            async with hub.client(machine):
                pass
        assert caught.value.response.status_code == status
        assert b"errorCode" in (caught.value.response.body or b"")


async def enveloped(machine: ClientConnection) -> tuple[str, RelayEvent, bytes]:
    async with asyncio.timeout(LIMIT_S):
        message = unwrap(await machine.recv(decode=False))
    return message.header.client, message.header.event, message.body


async def test_the_envelope_carries_bodies_unread(hub: Hub) -> None:
    lease = await register(hub, relay_envelope=True)
    async with hub.machine(lease["wsUrl"]) as machine:
        await until_online(hub)
        async with hub.client(lease["connectionId"]) as client:
            name, event, _ = await enveloped(machine)
            assert event is RelayEvent.OPENED
            odd = 'not json at all\nbut "Größe" 😀'
            await client.send(odd)
            assert await enveloped(machine) == (name, RelayEvent.FRAME, odd.encode())
            await machine.send(wrap(name, odd.encode()), text=True)
            await machine.send(wrap("nobody", b"x"), text=True)
            assert await client.recv() == odd
        assert await enveloped(machine) == (name, RelayEvent.CLOSED, b"")


async def test_a_machine_that_leaves_ends_its_clients(hub: Hub) -> None:
    lease = await register(hub, relay_envelope=True)
    async with hub.machine(lease["wsUrl"]) as machine:
        await until_online(hub)
        async with hub.client("device-1") as client:
            await enveloped(machine)
            await machine.close()
            assert await closing(client) == (1013, "the machine disconnected")


async def test_a_malformed_header_ends_the_link(hub: Hub) -> None:
    lease = await register(hub, relay_envelope=True)
    async with hub.machine(lease["wsUrl"]) as machine:
        await machine.send("not a header\nbody")
        assert (await closing(machine))[0] == 1007


async def test_a_slow_client_is_cut_and_nobody_else_waits(tmp_path: Path) -> None:
    limits = RelayLimits(queue_frames=50, queue_bytes=2_000_000)
    async with running_hub(tmp_path, limits=limits) as hub:
        lease = await register(hub, relay_envelope=True)
        async with hub.machine(lease["wsUrl"]) as machine:
            await until_online(hub)
            async with hub.client("device-1") as slow, hub.client("device-1") as quick:
                names = [(await enveloped(machine))[0] for _ in range(2)]
                slow.transport.pause_reading()  # type: ignore[attr-defined]
                frame = json.dumps({"type": "x", "fill": "y" * 200_000}).encode()
                for _ in range(80):
                    await machine.send(wrap(names[0], frame), text=True)
                    await machine.send(wrap(names[1], b'{"type":"small"}'), text=True)
                    assert await receive_json(quick) == {"type": "small"}
                slow.transport.resume_reading()  # type: ignore[attr-defined]
                assert (await closing(slow))[0] == 1013
                await quick.send('{"type":"on"}')
                frames = [await enveloped(machine) for _ in range(2)]
                assert sorted(frames) == sorted(
                    [(names[0], RelayEvent.CLOSED, b""), (names[1], RelayEvent.FRAME, b'{"type":"on"}')]
                )


async def test_a_client_frame_beyond_the_limit_closes_that_client_only(tmp_path: Path) -> None:
    async with running_hub(tmp_path, limits=RelayLimits(client_frame_bytes=1000)) as hub:
        lease = await register(hub, relay_envelope=True)
        async with hub.machine(lease["wsUrl"]) as machine:
            await until_online(hub)
            for frame in ("x" * 1001, "ü" * 501):
                async with hub.client("device-1") as client:
                    await enveloped(machine)
                    await client.send(frame)
                    assert (await closing(client))[0] == 1009
                    assert (await enveloped(machine))[1] is RelayEvent.CLOSED
            await machine.send('{"type":"ping"}')
            assert await receive_json(machine) == {"type": "pong"}


async def test_a_silent_machine_is_given_up(tmp_path: Path) -> None:
    async with running_hub(tmp_path, limits=RelayLimits(machine_silence_s=0.2)) as hub:
        lease = await register(hub)
        async with hub.machine(lease["wsUrl"]) as machine:
            assert await closing(machine) == (1011, "nothing heard for too long")


async def test_clients_of_a_stock_machine_do_not_get_each_others_answers(hub: Hub) -> None:
    lease = await register(hub)
    async with hub.machine(lease["wsUrl"]) as machine:
        await until_online(hub)
        async with (
            hub.client("device-1", "?agentId=agent-1&conversationId=c1") as one,
            hub.client("device-1", "?agentId=agent-2&conversationId=c2") as two,
        ):
            asked = {"type": "sync", "request_id": "runtime-start-1"}
            requests = []
            for client in (one, two):
                await client.send(json.dumps(asked))
                requests.append(await receive_json(machine))
            assert requests[0]["request_id"] != requests[1]["request_id"]
            for number, request in reversed(list(enumerate(requests))):
                answer = {"type": "sync_response", "request_id": request["request_id"], "n": number}
                await machine.send(json.dumps(answer))
            assert await receive_json(one) == {"type": "sync_response", "request_id": "runtime-start-1", "n": 0}
            assert await receive_json(two) == {"type": "sync_response", "request_id": "runtime-start-1", "n": 1}
            runtime = {"agent_id": "agent-2", "conversation_id": "c2"}
            question = {"type": "control_request", "request_id": "perm-1", "runtime": runtime}
            everyone = {"type": "memory_updated", "timestamp": 1}
            for frame in (question, everyone, "junk"):
                await machine.send(json.dumps(frame))
            assert [await receive_json(two) for _ in range(2)] == [question, everyone]
            assert await receive_json(one) == everyone
            answer = {"type": "external_tool_call_response", "request_id": "tool-1"}
            await one.send(json.dumps(answer))
            assert await receive_json(machine) == answer


async def git(folder: Path, *words: str) -> str:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    done = await asyncio.to_thread(
        subprocess.run, ["git", *identity, *words], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


async def test_a_push_is_announced_to_machines_and_a_clone_needs_the_machine_token(hub: Hub, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    remote = f"{hub.url.replace('://', '://letta:' + hub.token('machine') + '@')}/v1/git/agent-1/state.git"
    async with running_uplink(hub.url, hub.token("machine")) as rig:
        await until(lambda: rig.uplink.status().connection_id is not None, "connected")
        await until_online(hub)
        await git(work, "init", "-q", "-b", "main")
        await git(work, "commit", "-q", "--allow-empty", "-m", "first")
        await git(work, "push", "-q", remote, "main")
        head = await git(work, "rev-parse", "HEAD")
        await until(lambda: rig.heads == [("agent-1", head)], "the head was told")
    async with calling(hub, "client") as http:
        assert (await http.get("/v1/agents/")).json() == [{"id": "agent-1", "name": "agent-1"}]
    await git(tmp_path, "clone", "-q", remote, "copy")
    with pytest.raises(AssertionError, match=r"403|401|[Aa]uthentication"):
        await git(
            tmp_path,
            "-c",
            "core.askPass=true",
            "clone",
            "-q",
            remote.replace(hub.token("machine"), hub.token("client")),
            "no",
        )
