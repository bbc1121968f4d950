"""What most tests of memory share: a hub's git host."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.git_host_server import RunningHost, running_git_host


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[RunningHost]:
    with running_git_host(tmp_path / "hub") as running:
        yield running
