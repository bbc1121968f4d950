"""What the hub's audit log holds afterwards: who was let in, turned away or taken out, each in a row of its own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lodger_hub.access.core.lockout import WRONG_ATTEMPTS
from lodger_hub.access.core.pairing import WRONG_CODES_PER_SOURCE
from lodger_hub.store.sqlite import SqliteHubStore
from support.hub_calls import call, paired
from support.hub_rig import Hub, running_hub


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Hub]:
    async with running_hub(tmp_path) as hub:
        yield hub


async def audit(hub: Hub) -> list[tuple[str, str, str]]:
    reader = await SqliteHubStore.open(hub.state / "hub.db")
    try:
        return [(entry.event, entry.source, entry.subject) for entry in reversed(await reader.audit(1000))]
    finally:
        await reader.aclose()


async def test_pairing_rotating_and_revoking_are_kept_with_the_device(hub: Hub) -> None:
    device, token = await paired(hub)
    assert (await call(hub, token, "POST", f"/v1/devices/{device}/rotate"))[0] == 200
    assert (await call(hub, hub.token("client"), "DELETE", f"/v1/devices/{device}"))[0] == 200
    here = "127.0.0.1"
    assert await audit(hub) == [
        ("pairing_code_made", here, "client"),
        ("paired", here, device),
        ("rotated", here, device),
        ("revoked", here, device),
    ]


async def test_w3_lock_outs_are_kept_once_each(hub: Hub) -> None:
    for number in range(3 * WRONG_CODES_PER_SOURCE):
        await call(hub, "", "POST", "/v1/pair", json={"code": f"0000-{number:04}", "name": "x"})
    for number in range(3 * WRONG_ATTEMPTS):
        await call(hub, f"guess-{number}", "GET", "/v1/devices")
    assert await audit(hub) == [("pairing_locked_out", "127.0.0.1", ""), ("locked_out", "127.0.0.1", "")]


async def test_w8_a_phone_that_registers_as_a_machine_is_kept_however_often_it_tries_once(hub: Hub) -> None:
    device, token = await paired(hub)
    body = {"deviceId": "mine", "connectionName": "x"}
    for _ in range(20):
        assert (await call(hub, token, "POST", "/v1/environments/register", json=body))[0] == 403
    assert (await call(hub, token, "POST", "/v1/pairings"))[0] == 403
    assert (await audit(hub))[2:] == [
        ("wrong_role", "127.0.0.1", f"{device}, needed: machine"),
        ("wrong_role", "127.0.0.1", f"{device}, needed: owner"),
    ]


async def test_no_token_and_no_code_stands_in_it(hub: Hub) -> None:
    _, made = await call(hub, hub.token("client"), "POST", "/v1/pairings")
    _, given = await call(hub, "", "POST", "/v1/pair", json={"code": made["code"], "name": "phone"})
    await call(hub, given["token"] + "x", "GET", "/v1/devices")
    kept = (hub.state / "hub.db").read_bytes() + (hub.state / "hub.db-wal").read_bytes()
    for secret in (given["token"], made["code"], made["code"].replace("-", ""), hub.token("client")):
        assert secret.encode() not in kept
