"""A second machine joins a hub with a certificate of its own by its fingerprint: link and memory, real processes."""

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.patience import LIMIT_S
from support.program_client import local_client, open_conversation, remember, script
from support.programs import World, free_port, new_world

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with new_world("pinned") as made:
        yield made


async def test_a_machine_joins_by_fingerprint_and_its_memory_goes_the_same_way(world: World) -> None:
    a, b = world.home("a"), world.home("b")
    port = free_port()
    hub = await world.hub(a, "--lan", "--lan-port", str(port))
    url = f"https://127.0.0.1:{port}"
    pairing = (await world.run(a, "pair", "--machine", "--json")).ok().json
    config = b.lodger / "config"

    strange = await world.run(b, "join", url, pairing["code"])
    assert strange.code == 3
    wrong = "00:" + pairing["fingerprint"][3:]
    refused = await world.run(b, "join", url, pairing["code"], "--fingerprint", wrong)
    assert refused.code == 3
    assert "Nothing was sent" in refused.err
    assert not (config / "hub.pem").exists()

    joined = (await world.run(b, "join", url, pairing["code"], "--fingerprint", pairing["fingerprint"], "--json")).ok()
    assert joined.json["ca_file"] == str(config / "hub.pem")
    (config / "settings.toml").write_text(
        f'[hub]\nurl = "{url}"\ntoken_file = "{joined.json["token_file"]}"\nca_file = "{joined.json["ca_file"]}"\n'
    )
    await world.daemon(b, endpoint=await world.endpoint())
    own = (a.state / "hub" / "client.token").read_text().strip()

    def ask() -> Any:
        request = urllib.request.Request(
            f"{hub.first['url']}/v1/environments", headers={"Authorization": f"Bearer {own}"}
        )
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            return json.loads(answer.read())["connections"]

    async with local_client(b.socket) as client:
        conversation = await open_conversation(client, cwd=b.workspace)
        await conversation.turn("Remember. " + script({"calls": [remember("x", "A fact.")]}, {"text": "kept"}))
        async with asyncio.timeout(40):
            while True:
                shown = await asyncio.to_thread(ask)
                if shown and shown[0]["connectionId"] and shown[0]["lodger"]["lastMemorySyncAt"]:
                    break
                await asyncio.sleep(0.05)
    assert list((a.state / "hub" / "git").glob("*"))
