"""Recordings of the reference server, replayed against the running program: real processes, boxes and sockets."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from support.replay_expected import RECORDINGS
from support.replay_place import Place, replay_place

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place() -> AsyncIterator[Place]:
    async with replay_place() as running:
        yield running


@pytest.mark.parametrize("name", RECORDINGS)
async def test_a_recording_replays(place: Place, name: str) -> None:
    await place.replay(name)


async def test_the_first_line_is_json(place: Place) -> None:
    assert place.first_line["type"] == "listening"
    assert place.url.startswith("ws://127.0.0.1:")
