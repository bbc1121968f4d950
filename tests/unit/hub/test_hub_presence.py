"""Presence that tells the truth: last contact and last memory sync of a machine, each with its age."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lodger_hub.access.tokens import own_device_id
from lodger_hub.store.contract import TokenRole
from support.hub_calls import call, lease_of, online
from support.hub_rig import QUICK, Hub, receive_json, running_hub, running_uplink
from support.patience import LIMIT_S


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Hub]:
    async with running_hub(tmp_path) as hub:
        yield hub


async def shown(hub: Hub) -> dict[str, Any]:
    _, answer = await call(hub, hub.token("client"), "GET", "/v1/environments/device-1")
    facts: dict[str, Any] = answer["lodger"]
    return facts


async def until_synced(hub: Hub, at_ms: int) -> dict[str, Any]:
    async with asyncio.timeout(LIMIT_S):
        while (facts := await shown(hub))["lastMemorySyncAt"] != at_ms:  # noqa: ASYNC110 - asked over HTTP
            await asyncio.sleep(0.01)
    return facts


async def test_a_daemon_reports_its_memory_and_it_is_shown_with_its_age(hub: Hub) -> None:
    level_at = 1_000_000.5
    async with running_uplink(
        hub.url,
        hub.token("machine"),
        timing=replace(QUICK, probe_interval_s=3600),
        metadata={"relay_envelope": True},
        memory_level_at=lambda: level_at,
    ):
        await online(hub)
        facts = await until_synced(hub, 1_000_000_500)
        assert facts["connected"] is True
        assert facts["lastMemorySyncAgeMs"] > 365 * 24 * 3600 * 1000
        assert 0 <= facts["lastContactAgeMs"] < LIMIT_S * 1000
        level_at = 1_000_007.0
        await until_synced(hub, 1_000_007_000)
    async with asyncio.timeout(LIMIT_S):
        while (await shown(hub))["connected"]:  # noqa: ASYNC110 - asked over HTTP
            await asyncio.sleep(0.01)
    assert (await shown(hub))["lastMemorySyncAt"] == 1_000_007_000


@pytest.mark.parametrize("enveloped", [True, False])
async def test_what_a_machine_says_of_itself_is_bounded(hub: Hub, enveloped: bool) -> None:
    async with hub.machine(await lease_of(hub, enveloped=enveloped)) as machine:
        for value in ('"soon"', "-1", "1e300", "null", "true", "[]", "NaN"):
            await machine.send(f'{{"type":"lodger_presence","memory_synced_at":{value}}}')
        await machine.send('{"type":"ping"}')
        assert await receive_json(machine) == {"type": "pong"}
        facts = await shown(hub)
        assert facts["lastMemorySyncAt"] is None
        # A clock that is ahead does not put the sync into the future.
        await machine.send('{"type":"lodger_presence","memory_synced_at":99999999999}')
        await machine.send('{"type":"ping"}')
        await receive_json(machine)
        facts = await shown(hub)
        assert facts["lastMemorySyncAt"] <= facts["lastContactAt"] + 1000
        assert facts["lastMemorySyncAgeMs"] < LIMIT_S * 1000


async def test_a_machine_that_never_synced_says_so(hub: Hub) -> None:
    await lease_of(hub)
    facts = await shown(hub)
    assert (facts["connected"], facts["lastMemorySyncAt"], facts["lastMemorySyncAgeMs"]) == (False, None, None)


@pytest.mark.parametrize("role", ["machine", "client"])
async def test_a_device_that_is_connected_was_seen_at_its_last_sign_of_life(hub: Hub, role: str) -> None:
    async def seen_at() -> int:
        _, answer = await call(hub, hub.token("client"), "GET", "/v1/devices")
        [at] = [one["last_seen_at"] for one in answer["devices"] if one["id"] == own_device_id(TokenRole(role))]
        assert isinstance(at, int)
        return at

    lease = await lease_of(hub, enveloped=True)
    async with hub.machine(lease) as machine:
        await online(hub)
        async with hub.client("device-1") as client:
            assert "opened" in str(await machine.recv())
            opened = await seen_at()
            async with asyncio.timeout(LIMIT_S):
                # Each time anew: the first sign may fall into the millisecond in which the socket was opened.
                while await seen_at() <= opened:
                    await (machine if role == "machine" else client).send('{"type":"ping"}')
