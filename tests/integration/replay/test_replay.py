"""Recordings of the reference server, replayed against the running program: real processes, boxes and sockets."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from support.replay_expected import CONTAINED, RECORDINGS
from support.replay_place import Place, replay_place

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place() -> AsyncIterator[Place]:
    async with replay_place(ask_every_command=True) as running:
        yield running


@pytest.mark.parametrize("name", [name for name in RECORDINGS if name not in CONTAINED])
async def test_a_recording_replays(place: Place, name: str) -> None:
    await place.replay(name)


@pytest.mark.parametrize("name", CONTAINED)
async def test_a_recording_replays_where_contained_commands_run(name: str) -> None:
    async with replay_place(ask_every_command=False) as place:
        await place.replay(name)


async def test_the_first_line_is_json(place: Place) -> None:
    assert place.first_line["type"] == "listening"
    assert place.url.startswith("ws://127.0.0.1:")
