"""A machine's id belongs to the token that first registered it: no other machine of the same hub takes its place."""

import contextlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from lodger_daemon.uplink.core.status import UplinkState
from lodger_hub.store.schema import FIRST, SECOND
from lodger_hub.store.sqlite import SqliteHubStore
from support.hub_calls import call, closing
from support.hub_rig import Hub, running_hub, running_uplink, until


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Hub]:
    async with running_hub(tmp_path) as hub:
        yield hub


async def joined(hub: Hub, name: str) -> tuple[str, str]:
    """A machine's device id and token of its own."""
    _, made = await call(hub, hub.token("client"), "POST", "/v1/pairings", json={"role": "machine"})
    _, given = await call(hub, "", "POST", "/v1/pair", json={"code": made["code"], "name": name})
    return given["device_id"], given["token"]


async def register(hub: Hub, token: str, machine_id: str) -> tuple[int, Any]:
    body = {"deviceId": machine_id, "connectionName": f"name of {machine_id}", "metadata": {"relay_envelope": True}}
    return await call(hub, token, "POST", "/v1/environments/register", json=body)


async def audit(hub: Hub) -> list[tuple[str, str]]:
    reader = await SqliteHubStore.open(hub.state / "hub.db")
    try:
        return [(entry.event, entry.subject) for entry in reversed(await reader.audit(100))]
    finally:
        await reader.aclose()


async def test_another_machines_token_does_not_take_an_id_over(hub: Hub) -> None:
    device, mine = await joined(hub, "laptop")
    other_device, others = await joined(hub, "server")
    assert (await register(hub, mine, "machine-a"))[0] == 200
    for token in (others, hub.token("machine")):
        status, answer = await register(hub, token, "machine-a")
        assert (status, answer["errorCode"]) == (409, "machine_taken")
        assert "laptop" in answer["message"]
        assert "lodger devices release machine-a" in answer["message"]
    assert (await register(hub, mine, "machine-a"))[0] == 200
    refused = [subject for event, subject in await audit(hub) if event == "machine_refused"]
    assert refused == [
        f"machine-a with the token of {other_device}",
        "machine-a with the token of own-machine",
    ]
    assert device not in str(refused)


async def test_a_joined_machines_token_is_good_for_one_machine(hub: Hub) -> None:
    _, mine = await joined(hub, "laptop")
    assert (await register(hub, mine, "machine-a"))[0] == 200
    status, answer = await register(hub, mine, "machine-b")
    assert (status, answer["errorCode"]) == (409, "token_taken")
    assert "name of machine-a (machine-a)" in answer["message"]
    # The hub's own may be copied to several, as the documentation tells.
    for machine_id in ("machine-c", "machine-d"):
        assert (await register(hub, hub.token("machine"), machine_id))[0] == 200


async def test_the_person_releases_an_id_and_nobody_else_does(hub: Hub) -> None:
    _, mine = await joined(hub, "laptop")
    _, others = await joined(hub, "laptop again")
    await register(hub, mine, "machine-a")
    for token in (mine, others, hub.token("machine")):
        assert (await call(hub, token, "POST", "/v1/machines/machine-a/release"))[0] == 403
    assert (await call(hub, hub.token("client"), "POST", "/v1/machines/nobody/release"))[0] == 404
    assert (await call(hub, hub.token("client"), "POST", "/v1/machines/machine-a/release"))[0] == 200
    assert ("machine_released", "machine-a") in await audit(hub)
    assert (await register(hub, others, "machine-a"))[0] == 200
    assert (await register(hub, mine, "machine-a"))[1]["errorCode"] == "machine_taken"


async def test_a_revoked_machine_leaves_its_id_to_whoever_joins_next(hub: Hub) -> None:
    device, mine = await joined(hub, "laptop")
    await register(hub, mine, "machine-a")
    assert (await call(hub, hub.token("client"), "DELETE", f"/v1/devices/{device}"))[0] == 200
    _, fresh = await joined(hub, "laptop")
    assert (await register(hub, fresh, "machine-a"))[0] == 200


async def test_anothers_lease_is_no_way_in(hub: Hub) -> None:
    _, mine = await joined(hub, "laptop")
    _, others = await joined(hub, "server")
    _, lease = await register(hub, mine, "machine-a")
    await register(hub, others, "machine-b")
    from websockets.asyncio.client import connect

    where = f"{lease['wsUrl']}&deviceId=machine-a&connectionName=x"
    async with connect(where, additional_headers={"Authorization": f"Bearer {others}"}, proxy=None) as socket:
        assert await closing(socket) == (1008, "unknown connection id")


async def test_a_daemon_that_is_refused_says_what_to_do_and_goes_on_trying(hub: Hub) -> None:
    _, mine = await joined(hub, "laptop")
    await register(hub, mine, "device-1")
    async with running_uplink(hub.url, hub.token("machine")) as rig:
        await until(lambda: rig.uplink.status().failures >= 2, "tries")
        words = rig.uplink.status().reason or ""
        assert words.startswith("the hub answered 409: the machine id device-1 belongs to another token (laptop).")
        assert words.endswith("delete `device-id` in its state folder")
        await call(hub, hub.token("client"), "POST", "/v1/machines/device-1/release")
        await until(lambda: rig.uplink.status().state is UplinkState.CONNECTED, "let in")


async def test_a_store_of_an_older_hub_lets_the_first_to_come_have_each_id(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "hub.db")) as database:
        database.executescript(f"BEGIN; {FIRST} {SECOND} PRAGMA user_version = 2; COMMIT;")
        database.execute(
            "INSERT INTO environments (id, connection_id, device_id, connection_name, metadata, first_seen_at_ms, "
            "last_seen_at_ms) VALUES ('e', 'c', 'machine-a', 'old', '{}', 1, 1)"
        )
        database.commit()
    async with running_hub(tmp_path) as hub:
        _, mine = await joined(hub, "laptop")
        assert (await register(hub, mine, "machine-a"))[0] == 200
        assert (await register(hub, hub.token("machine"), "machine-a"))[0] == 409
