"""R5, section 5: a hub that is killed leaves no process of its own behind, whatever it was in the middle of."""

import socket
import struct
from base64 import b64encode
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest

from support.machine_processes import descendants
from support.programs import World, new_world, until

AGENT = "agent-1"
SERVICES = ["git-receive-pack", "git-upload-pack"]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with new_world("killedhub") as made:
        yield made


def half_a_request(url: str, token: str, service: str) -> socket.socket:
    """What a git that is pushing or fetching has sent when it is half through; the rest never comes."""
    parts = urlsplit(url)
    basic = b64encode(f"letta:{token}".encode()).decode()
    line = socket.create_connection((parts.hostname, parts.port), timeout=10)
    line.sendall(
        (
            f"POST /v1/git/{AGENT}/state.git/{service} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
            f"Authorization: Basic {basic}\r\nContent-Type: application/x-{service}-request\r\n"
            "Content-Length: 800\r\n\r\n"
        ).encode()
        + b"00a5"
        + b"0" * 10
    )
    return line


@pytest.mark.parametrize("service", SERVICES)
async def test_a_hub_killed_amid_a_request_of_git_leaves_no_git(world: World, service: str) -> None:
    home = world.home("a")
    hub = await world.hub(home)
    url = str(hub.first["url"])
    token = (home.state / "hub" / "machine.token").read_text().strip()
    with half_a_request(url, token, service):
        await until(lambda: [s for s in descendants(hub.pid) if "http-backend" in s.command], "a git that reads")
        gits = [seen for seen in descendants(hub.pid) if seen.pid != hub.pid]
        await hub.killed()
        await until(lambda: not [seen for seen in gits if seen.alive], "all of them have ended")


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize("reset", [False, True])
async def test_nor_does_a_client_that_goes_away(world: World, service: str, reset: bool) -> None:
    home = world.home("a")
    hub = await world.hub(home)
    token = (home.state / "hub" / "machine.token").read_text().strip()
    line = half_a_request(str(hub.first["url"]), token, service)
    await until(lambda: [s for s in descendants(hub.pid) if "http-backend" in s.command], "a git that reads")
    if reset:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    line.close()
    await until(lambda: not [s for s in descendants(hub.pid) if "http-backend" in s.command], "it has ended")
    assert not hub.ended
