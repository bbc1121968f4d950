"""`lodger connect` as a person uses it: what a provider is, where its key goes, and forgetting both."""

from collections.abc import AsyncIterator

import pytest

from support.programs import World, new_world

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with new_world("connect") as made:
        yield made


async def test_a_server_of_ones_own_in_the_other_dialect(world: World) -> None:
    home, endpoint = world.home("a"), await world.endpoint()
    await world.daemon(home)
    connected = ("connect", "mine", "--base-url", endpoint.url, "--dialect", "anthropic", "--model", "scripted")
    ran = await world.run(home, *connected, "--model", "other", "--api-key-file", "-", "--json", stdin="sk-mine\n")
    assert ran.ok().json == {"provider": "mine", "connected": True, "models": ["mine/scripted", "mine/other"]}
    assert ran.err == ""
    asked = await world.run(home, "ask", "--model", "mine/scripted", '<<{"steps": [{"text": "yes"}]}>>')
    assert asked.ok().out.strip() == "yes"
    (request,) = await endpoint.requests()
    assert (request["path"], request["headers"]["x-api-key"]) == ("/v1/messages", "sk-mine")
    assert (await world.run(home, "connect", "mine", "--remove")).ok().out == "mine is forgotten.\n"
    assert (await world.run(home, "connect", "mine", "--remove")).code == 1


async def test_what_is_wrong_is_said(world: World) -> None:
    home = world.home("a")
    await world.daemon(home)
    unknown = await world.run(home, "connect", "mine", "--base-url", "http://127.0.0.1:9/v1", "--dialect", "french")
    assert unknown.code == 1
    assert "dialect 'french' is not one of openai, anthropic, litellm" in unknown.err
    # Which leads to this machine all the same, so that nothing leaves it.
    far = ("connect", "far", "--base-url", "http://0.0.0.0:9/v1", "--model", "x", "--api-key-file", "-")
    readable = await world.run(home, *far, stdin="sk-far\n")
    assert "not encrypted" in readable.err
    assert "sk-far" not in readable.out + readable.err
