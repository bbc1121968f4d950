"""What most tests of turns share: a house with nobody in it yet."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.turn_parts import House


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    one = House(tmp_path)
    yield one
    await one.close()
