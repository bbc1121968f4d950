"""W10, from within a box: a program there listens at the port of a hub, or of a model server, that is away.

What Lodger forwards is its own user's socket, so neither daemon, commands nor browser could tell it from the real one:
the machine's token would go to the box, and the page's to a page of the box.
"""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from lodger_daemon.clients.peers import PortOwner
from lodger_daemon.models.discovery import is_trusted
from lodger_daemon.models.gateway import Models
from lodger_daemon.paths import find_paths
from lodger_daemon.ports.core.own_callees import ports_of
from lodger_daemon.service.link import Hub
from lodger_daemon.system_clock import SystemClock
from support.port_room import PortRoom, port_room, server_port
from support.real_boxes import workspace_for_tests

PORT = server_port()
URL = f"http://127.0.0.1:{PORT}"
PROGRAM = f"exec python3 -m http.server --bind 127.0.0.1 {PORT}"


@pytest.fixture
def workspace() -> Iterator[Path]:
    with workspace_for_tests() as made:
        yield made


@pytest.fixture
async def room(tmp_path: Path, workspace: Path) -> AsyncIterator[PortRoom]:
    async with port_room(tmp_path, workspace) as made:
        yield made


def owner(folder: Path) -> PortOwner:
    (folder / "token").write_text("machine-token")
    return Hub(URL, folder / "token").port_owner()


@pytest.mark.parametrize(
    "spoken_to",
    ["http://127.0.0.1:PORT", "http://127.0.0.1:PORT/v1", "http://localhost:PORT", "https://this-machine:PORT/"],
)
async def test_w10_no_box_gets_the_port_of_whom_lodger_speaks_to(
    room: PortRoom, tmp_path: Path, spoken_to: str
) -> None:
    room.spoken_to.append(spoken_to.replace("PORT", str(PORT)))
    await room.serve(PROGRAM, PORT)
    local = await room.allowed(PORT)
    assert local != PORT
    assert owner(tmp_path) is PortOwner.NOBODY
    # Nor when a rule, or the person by hand, opens it.
    [one] = room.ports.listed()
    await room.ports.close(one.box, PORT)
    assert await room.ports.open(one.box, PORT) != PORT
    await room.ports.close(one.box, PORT)
    assert owner(tmp_path) is PortOwner.NOBODY


async def test_w10_the_control_such_a_port_looks_like_the_real_one(room: PortRoom, tmp_path: Path) -> None:
    await room.serve(PROGRAM, PORT)
    assert await room.allowed(PORT) == PORT
    assert owner(tmp_path) is PortOwner.OURS
    assert is_trusted(f"{URL}/v1", os.geteuid())


async def test_w10_a_later_daemon_takes_no_such_port_back(room: PortRoom, tmp_path: Path, workspace: Path) -> None:
    await room.serve(PROGRAM, PORT)
    assert await room.allowed(PORT) == PORT
    await room.let_go()
    async with port_room(tmp_path, workspace) as later:
        later.spoken_to.append(URL)
        await later.manager.start()
        await later.look()
        assert await later.opened(PORT) != PORT
        assert owner(tmp_path) is PortOwner.NOBODY


async def test_w10_the_daemon_tells_all_whom_it_speaks_to(tmp_path: Path) -> None:
    """Those that a person named, those that it looks for by itself."""
    named = {"mine": {"base_url": "http://127.0.0.1:4711/v1", "models": ["m"]}}
    models = Models(find_paths({"LODGER_HOME": str(tmp_path)}), SystemClock(), named, {})
    try:
        assert {4711, 11434, 1234, 8080} <= ports_of(models.addresses())
    finally:
        await models.aclose()
